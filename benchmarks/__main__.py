"""Runs every claim, each in its own process, ours and the peer's side by side: one JSON line per row.

Quick sizes without an argument; `--full` the sizes that the claims are about, which takes hours. `--gpu`: what a GPU
does, and nothing else (benchmarks/gpu.py).
"""

import subprocess
import sys
from pathlib import Path

NO_CLAIM = {"__init__", "__main__", "gpu", "growth", "measure", "mixture"}
NOT_QUICK = {
    "gain",
    "gsp_collage",
    "gsp_photos",
    "gsp_training_step",
    "heads",
    "kill_matrix",
    "parallel_flow",
    "pull_over_ssh",
    "rows",
    "zero_shot",
}


def run(claim: str) -> int:
    """The exit code of one claim; those that know full sizes are told about them."""
    text = (Path(__file__).parent / f"{claim}.py").read_text()
    sizes = sys.argv[1:] if "FULL" in text or "--full" in text else []
    return subprocess.run([sys.executable, "-m", f"benchmarks.{claim}", *sizes]).returncode


if __name__ == "__main__":
    if "--gpu" in sys.argv:
        gpu = [sys.executable, "-m", "benchmarks.gpu", *(word for word in sys.argv[1:] if word != "--gpu")]
        sys.exit(subprocess.run(gpu).returncode)
    claims = sorted({path.stem for path in Path(__file__).parent.glob("*.py")} - NO_CLAIM - NOT_QUICK)
    failed = [claim for claim in claims if run(claim)]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)
