"""Measure what claims need, and write docs/faithful/claims.md anew.

    python -m benchmarks.claims [NAME ...] [--seeds 0 1] [--again] [--page]

NAME is a claim (`grappa/average`) or an experiment of benchmarks/claims/*.yaml; without one all that are cheap. Each
experiment and seed is a run of the graph in a temporary copy of the repository that shares its DVC cache. Its numbers
are kept at once, so that a killed call goes on where it stopped. What is kept and has the same stages is measured
`--again` only if told. `--page` measures nothing.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.claims import kept, records
from benchmarks.claims.graph_runs import ROOT, copy_repository, measure
from benchmarks.claims.page import render

CSV, PAGE = ROOT / "docs/faithful/claims.csv", ROOT / "docs/faithful/claims.md"


def commit() -> str:
    """The commit, with a + where what is run differs from it."""
    paths = ["polygrain", "stages", "profiles", ":(glob)benchmarks/**/*.py", ":(glob)*.yaml"]
    words = [["status", "--porcelain", *paths], ["rev-parse", "--short=8", "HEAD"]]
    differs, name = (subprocess.check_output(["git", *of], cwd=ROOT, text=True).strip() for of in words)
    return name + "+" * bool(differs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", type=int, nargs="+", help="in place of each experiment's own")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--page", action="store_true")
    words = parser.parse_args()
    try:
        experiments, claims = records.read()
        for name in words.names:
            records.require("claim or experiment", name, [*claims, *experiments])
    except ValueError as error:
        sys.exit(f"error: {error}")
    asked = {line.on for name in words.names if name in claims for line in claims[name].measured} | {*words.names}
    chosen = [name for name, one in experiments.items() if name in asked or (one.cheap and not words.names)]
    failed = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in [] if words.page else chosen:
            experiment, before = experiments[name], kept.read(CSV).get(name, kept.Kept([]))
            digests, missing = experiment.digests(), [path for path in experiment.needs if not (ROOT / path).exists()]
            for seed in words.seeds or experiment.seeds:
                is_kept = seed in before.commits and not before.changed(digests, [seed]) and not words.again
                told = (
                    f"untested, {missing[0]} is missing: {experiment.fetch}"
                    if missing
                    else "kept"
                    if is_kept
                    else "runs"
                )
                print(f"{name}, seed {seed}: {told}", flush=True)
                if told == "runs":
                    try:
                        if not (Path(temporary) / ".git").exists():
                            copy_repository(Path(temporary))
                        rows = measure(experiment, seed, Path(temporary))
                        kept.add(CSV, name, seed, rows, digests, commit())
                    except subprocess.CalledProcessError as error:
                        failed.append(f"{name}, seed {seed}: {error}")
    PAGE.write_text(render(experiments, claims, kept.read(CSV)), encoding="utf-8")
    sys.exit("\n".join(failed) or None)


if __name__ == "__main__":
    main()
