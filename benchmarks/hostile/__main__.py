"""Runs the campaigns, prints how many attacks met which verdict, fails where one is raw, silent, a hang or an escape.

    python -m benchmarks.hostile [campaign ...] [--share 0.1] [--seed 0]

A campaign is a file of this folder with `COUNT`, the attacks of a whole run, and
`run(count, seed, folder) -> Iterator[Outcome]`, which may use the empty folder as it likes.
"""

import argparse
import importlib
import sys
import tempfile
from pathlib import Path

from tqdm import tqdm

from benchmarks.hostile.outcome import FAILURES, VERDICTS, Outcome, count

NAMES = sorted({path.stem for path in Path(__file__).parent.glob("[!_]*.py")} - {"outcome"})


def campaign(name: str, share: float, seed: int) -> list[Outcome]:
    """All outcomes of one campaign, or of a share of it; the failures are printed as they come."""
    module = importlib.import_module(f"benchmarks.hostile.{name}")
    total = max(1, round(share * module.COUNT))
    found = []
    with tempfile.TemporaryDirectory() as folder, tqdm(total=total, desc=name) as bar:
        for outcome in module.run(total, seed, Path(folder)):
            found.append(outcome)
            bar.update()
            if outcome.verdict in FAILURES:
                bar.write(f"{name}: {outcome.verdict}: {outcome.case}: {outcome.detail}", file=sys.stderr)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("campaigns", nargs="*", choices=[*NAMES, []], default=[], help="all without one")
    parser.add_argument("--share", type=float, default=1.0, help="of each campaign")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    failed = False
    rows = []
    for name in arguments.campaigns or NAMES:
        row = count(campaign(name, arguments.share, arguments.seed))
        rows.append(f"| {name} | " + " | ".join(str(value) for value in row.values()) + " |")
        failed |= any(row[verdict] for verdict in FAILURES)
    print(f"| campaign | tried | {' | '.join(VERDICTS)} |\n|---|" + "---:|" * (1 + len(VERDICTS)))
    print("\n".join(rows))
    sys.exit(failed)
