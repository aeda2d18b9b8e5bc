"""Runs every quick claim, each in its own process, ours and the peer's side by side: one JSON line per row."""

import subprocess
import sys
from pathlib import Path

NOT_QUICK = {
    "__init__",
    "__main__",
    "gain",
    "gsp_training_step",
    "heads",
    "kill_matrix",
    "measure",
    "parallel_flow",
    "pull_over_ssh",
    "rows",
    "zero_shot",
}

if __name__ == "__main__":
    claims = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in NOT_QUICK)
    failed = [claim for claim in claims if subprocess.run([sys.executable, "-m", f"benchmarks.{claim}"]).returncode]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)
