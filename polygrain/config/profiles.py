"""A profile's params.yaml, which DVC reads, composed from its values.yaml.

How that is done the stages' runner knows; it is asked in a process of its own, since nothing here imports `stages`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[2]
RUNNER = "polygrain/runner"


def compose_wanted(root: Path, profile: str | None) -> None:
    """Renews the values of this profile, and brings back those that are missing of the others that are linked here:
    DVC reads every graph below the root, and one without values stops all of them."""
    linked = [graph.parent for graph in sorted(root.glob("profiles/*/dvc.yaml"))]
    for folder in linked:
        if folder.name == profile or not (folder / "params.yaml").exists():
            compose(folder)


def compose(folder: Path) -> None:
    """Renews params.yaml where a values.yaml stands in the folder; ValueError with what is wrong there."""
    if (folder / "values.yaml").exists():
        ask("compose", folder)


def require_words(folder: Path) -> None:
    """ValueError for values of params.yaml that a shell, which DVC hands them to, would read as more than words."""
    if (folder / "params.yaml").exists():
        ask("words", folder)


def renew_listings(folder: Path) -> None:
    """Lists anew what lies in an object store, where a task names one."""
    if "remote" in (folder / "params.yaml").read_text(encoding="utf-8", errors="replace"):
        ask("remotes", folder)


def survey(kind: str, where: str, pattern: str) -> dict[str, Any]:
    """What a stream of images holds; ValueError where it is none."""
    return json.loads(call(HERE, "survey", kind, where, pattern))


def ask(module: str, folder: Path) -> None:
    code = next((place for place in (folder.resolve(), *folder.resolve().parents) if (place / RUNNER).is_dir()), HERE)
    call(code, module, str(folder.resolve()))


def call(code: Path, module: str, *words: str) -> str:
    """What a module of the stages' runner prints; ValueError with what it complains of, else it is passed on."""
    command = [sys.executable, "-m", f"polygrain.config.{module}", *words]
    environment = os.environ | {"PYTHONPATH": str(code)}
    done = subprocess.run(command, cwd=code, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise ValueError(done.stderr.strip().removeprefix("error: "))
    sys.stderr.write(done.stderr)
    return done.stdout
