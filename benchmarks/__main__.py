"""Run every claim in a process of its own: one line of JSON each.

Without an argument sizes are small; `--full` takes the sizes of the claims, which takes hours. `--gpu` runs
benchmarks/gpu.py alone.
"""

import subprocess
import sys
from pathlib import Path

NO_CLAIM = {"__init__", "__main__", "gpu", "measure", "mixture"}
LONG = {"ladder", "regimes"}


def run(module: str, words: list[str]) -> int:
    return subprocess.run([sys.executable, "-m", f"benchmarks.{module}", *words]).returncode


if __name__ == "__main__":
    if "--gpu" in sys.argv:
        sys.exit(run("gpu", [word for word in sys.argv[1:] if word != "--gpu"]))
    claims = sorted({path.stem for path in Path(__file__).parent.glob("*.py")} - NO_CLAIM - LONG)
    failed = [claim for claim in claims if run(claim, sys.argv[1:])]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)
