"""Unfinished work of a stage, in `.work/<stage>/<key>/`, outside DVC.

The key is a digest of everything that the run depends on: parameters, inputs and sources. So a run never continues from
the state of another one, and a return to old parameters finds the old state.
"""

import hashlib
import json
import sys
from pathlib import Path

WORK = Path(".work")
ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("stages.", "polygrain.")
# How a stage is run, and what its values may be, is no dependency, as in dvc.yaml.
LEFT_OUT = (ROOT / "polygrain/runner", ROOT / "polygrain/config")


def digest(file: Path) -> str:
    """The SHA-256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def folder(stage: str, *inputs: object) -> Path:
    """The folder for a run with these inputs (parameters, digests of files) and the sources loaded now."""
    key = hashlib.sha256(json.dumps([*map(str, inputs)]).encode())
    for name, file in loaded_sources().items():
        key.update(f"{name} {digest(file)}\n".encode())
    return WORK / stage / key.hexdigest()[:16]


def loaded_sources() -> dict[str, Path]:
    """The project's loaded modules that a result may depend on, by their path below its root, sorted."""
    modules = [module for name, module in sys.modules.items() if name.startswith(PACKAGES) or name == "__main__"]
    files = {Path(file).resolve() for module in modules if (file := getattr(module, "__file__", None))}
    sources = [file for file in files if file.is_relative_to(ROOT)]
    return {
        file.relative_to(ROOT).as_posix(): file
        for file in sorted(sources)
        if not any(file.is_relative_to(folder) for folder in LEFT_OUT)
    }
