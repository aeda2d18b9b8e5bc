"""A profile's params.yaml, which DVC reads, composed from its values.yaml.

How that is done the stages' runner knows; it is asked in a process of its own, since nothing here imports `stages`.
"""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent


def compose(folder: Path) -> None:
    """Renews params.yaml where a values.yaml stands in the folder; ValueError with what is wrong there."""
    if not (folder / "values.yaml").exists():
        return
    root = folder.resolve().parent.parent
    code = root if (root / "stages").is_dir() else HERE
    command = [sys.executable, "-m", "stages.core.runner.compose", str(folder.resolve())]
    environment = os.environ | {"PYTHONPATH": str(code)}
    done = subprocess.run(command, cwd=code, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise ValueError(done.stderr.strip().removeprefix("error: "))
