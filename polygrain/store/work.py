"""What a stage keeps of unfinished work, in `.work/<stage>/<key>/`, outside DVC.

The key is made of everything the run depends on: a run with other parameters, inputs or sources never picks up a
foreign state, and going back to the old ones finds theirs.
"""

import hashlib
import json
import sys
from pathlib import Path

from polygrain.store.sums import digest

WORK = Path(".work")
ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("stages.", "polygrain.")


def folder(stage: str, *inputs: object) -> Path:
    """The folder for a run with these inputs (parameters, digests of what it reads), under the sources loaded now."""
    key = hashlib.sha256(json.dumps([*map(str, inputs)]).encode())
    for name, file in loaded_sources().items():
        key.update(f"{name} {digest(file)}\n".encode())
    return WORK / stage / key.hexdigest()[:16]


def loaded_sources() -> dict[str, Path]:
    """The project's modules that are loaded now, by their path below the project's root, in order of it.

    How a stage is run (polygrain/runner) is no dependency, here as in dvc.yaml.
    """
    modules = [module for name, module in sys.modules.items() if name.startswith(PACKAGES) or name == "__main__"]
    files = {Path(file).resolve() for module in modules if (file := getattr(module, "__file__", None))}
    inside = [
        file for file in files if file.is_relative_to(ROOT) and not file.is_relative_to(ROOT / "polygrain/runner")
    ]
    return {file.relative_to(ROOT).as_posix(): file for file in sorted(inside)}
