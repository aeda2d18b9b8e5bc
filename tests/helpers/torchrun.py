"""A program of a test, run by one process or by several that share its work."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def torchrun(processes: int, *arguments: str | Path, folder: Path | None = None) -> None:
    """Runs Python with these arguments in so many processes; one runs without torchrun. Raises if any fails."""
    several = ["-m", "torch.distributed.run", f"--nproc-per-node={processes}", "--standalone"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *(several if processes > 1 else []), *arguments]
    subprocess.run(command, check=True, env=environment, timeout=180, cwd=folder)
