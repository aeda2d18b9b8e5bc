"""Measure what claims need, and write docs/faithful/claims.md anew.

    python -m benchmarks.claims [NAME ...] [--seeds 0 1] [--again] [--page]

NAME is a claim (`grappa/average`) or an experiment of benchmarks/claims/*.yaml; without one all that are cheap. Each
seed is a run of the graph in a temporary copy of the repository that shares its DVC cache. Its numbers are kept at
once, so that a killed call goes on where it stopped. `--again` measures what is kept and has the same stages, too;
`--page` measures nothing.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.claims import kept, records
from benchmarks.claims.graph_runs import copy_repository, measure
from benchmarks.claims.page import render
from polygrain.store.imports import ROOT

CSV, PAGE = ROOT / "docs/faithful/claims.csv", ROOT / "docs/faithful/claims.md"
RUN = ("polygrain", "stages", "profiles", ":(glob)benchmarks/**/*.py", ":(glob)*.yaml")


def git(*words: str) -> str:
    return subprocess.check_output(["git", *words], cwd=ROOT, text=True).strip()


def main() -> str | None:
    """What failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", type=int, nargs="+", help="in place of each experiment's own")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--page", action="store_true")
    words = parser.parse_args()
    try:
        experiments, claims = records.read(Path(__file__).parent)
        for name in words.names:
            records.require("claim or experiment", name, [*claims, *experiments])
    except ValueError as error:
        return f"error: {error}"
    lines = [line for name in words.names if name in claims for line in claims[name].measured]
    asked = {*words.names, *(title for line in lines for title in line.experiments)}
    chosen = [name for name, one in experiments.items() if name in asked or (one.cheap and not words.names)]
    failed = []
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the copy goes
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary)
        for name in [] if words.page else chosen:
            experiment, before = experiments[name], kept.read(CSV)[name]
            digests, missing = experiment.digests(), [path for path in experiment.needs if not (ROOT / path).exists()]
            if missing:
                print(f"{name}: untested, {missing[0]} is missing: {experiment.fetch}", flush=True)
            for seed in () if missing else words.seeds or experiment.seeds:
                is_kept = seed in before.commits and not before.changed(digests, [seed]) and not words.again
                print(f"{name}, seed {seed}: {'kept' if is_kept else 'runs'}", flush=True)
                if is_kept:
                    continue
                if not (copy / ".git").exists():
                    copy_repository(copy)
                try:
                    rows = measure(experiment, seed, copy)
                except subprocess.CalledProcessError as error:
                    failed.append(f"{name}, seed {seed}: {error}")
                    continue
                commit = git("rev-parse", "--short=8", "HEAD") + "+" * bool(git("status", "--porcelain", *RUN))
                kept.add(CSV, name, seed, rows, digests, commit)
    PAGE.write_text(render(experiments, claims, kept.read(CSV)), encoding="utf-8")
    return "\n".join(failed) or None


if __name__ == "__main__":
    sys.exit(main())
