"""What a stage keeps of unfinished work, in `.work/<stage>/<key>/`, outside DVC.

The key is made of everything the run depends on: a run with other parameters, inputs or sources never picks up a
foreign state, and going back to the old ones finds theirs.
"""

import hashlib
import json
import sys
from pathlib import Path

from stages.core.store.sums import digest

WORK = Path(".work")
STAGES = Path(__file__).resolve().parents[2]


def folder(stage: str, *inputs: object) -> Path:
    """The folder for a run with these inputs (parameters, digests of what it reads), under the sources loaded now."""
    key = hashlib.sha256(json.dumps([*map(str, inputs)]).encode())
    for name, file in loaded_sources().items():
        key.update(f"{name} {digest(file)}\n".encode())
    return WORK / stage / key.hexdigest()[:16]


def loaded_sources() -> dict[str, Path]:
    """The project's modules that are loaded now, by their path below `stages`, in order of it.

    How a stage is run (core/runner) is no dependency, here as in dvc.yaml. Paths are taken from `stages` on: the folder
    that the project lies in may have any name.
    """
    modules = [module for name, module in sys.modules.items() if name.startswith("stages.") or name == "__main__"]
    files = {Path(file).resolve() for module in modules if (file := getattr(module, "__file__", None))}
    inside = [file for file in files if file.is_relative_to(STAGES) and not file.is_relative_to(STAGES / "core/runner")]
    return {file.relative_to(STAGES).as_posix(): file for file in sorted(inside)}
