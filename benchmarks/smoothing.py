"""A large collection smoothed by its neighbours: time and memory.

python -m benchmarks.smoothing [--rows 1000000] [--dim 384]
"""

import argparse
import json
import resource
import time

import torch

from benchmarks.measure import FULL
from benchmarks.mixture import hierarchical_mixture
from polygrain.retrieval.smoothing import Smoothing, neighbours_of, smooth_by

CHOSEN = Smoothing(0.9, 20)


def report(claim: str, start: float, **facts: object) -> None:
    peak = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)  # the most memory held so far
    row = {"claim": claim, "seconds": round(time.perf_counter() - start, 1), "peak_gib": peak}
    print(json.dumps(row | {"threads": torch.get_num_threads()} | facts), flush=True)


def measure(rows: int, dim: int) -> None:
    vectors = hierarchical_mixture(rows, dim)
    start = time.perf_counter()
    neighbours = neighbours_of(vectors, CHOSEN.neighbours)
    report(f"graph of {rows:,} x {dim}", start)
    smooth_by(vectors, neighbours, CHOSEN)
    report("graph and smoothed rows", start)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000 if FULL else 100_000)
    parser.add_argument("--dim", type=int, default=384)
    words, _ = parser.parse_known_args()
    measure(words.rows, words.dim)
