"""A large collection smoothed by its neighbours: time and memory of the whole, and of one image that is added.

    python -m benchmarks.smoothing [--rows 1000000] [--dim 384]

An added image is compared with the full pass over the collection that has it: the same graph with the new images in it,
solved anew.
"""

import argparse
import json
import resource
import time
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32, Int64

from benchmarks.measure import FULL
from benchmarks.mixture import hierarchical_mixture
from polygrain.app.gallery import Gallery
from polygrain.compute.vectors import unit_rows
from polygrain.retrieval.neighbours import nearest
from polygrain.retrieval.smoothing import (
    SmoothedRows,
    Smoothing,
    added,
    cosines,
    links,
    neighbours_of,
    smooth_by,
    smoothed,
)

CHOSEN, ADDED = Smoothing(0.9, 20), 50


def gib() -> float:
    """The most memory that this process has held."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)


def report(claim: str, start: float, **facts: object) -> None:
    row = {"claim": claim, "seconds": round(time.perf_counter() - start, 1), "peak_gib": gib()}
    print(json.dumps(row | {"threads": torch.get_num_threads()} | facts), flush=True)


def with_new(
    neighbours: Int64[np.ndarray, "row rank"], vectors: Float32[np.ndarray, "all dim"]
) -> Int64[np.ndarray, "all rank"]:
    """The graph of the first rows with the last ones in it: they take a place wherever they are nearer."""
    old, k = neighbours.shape
    new = np.arange(old, len(vectors))
    result = np.concatenate([neighbours, nearest(vectors[new], vectors, k + 1)[1][:, 1:]])
    similar = vectors[:old] @ vectors[new].T
    for row in np.flatnonzero(similar.max(1) > cosines(vectors, result)[:old, -1]):
        candidates = np.concatenate([neighbours[row], new])
        result[row] = candidates[np.argsort(-(vectors[candidates] @ vectors[row]), kind="stable")[:k]]
    return result


def measure(rows: int, dim: int) -> None:
    vectors = hierarchical_mixture(rows + ADDED, dim)
    old = vectors[:rows]
    start = time.perf_counter()
    neighbours = neighbours_of(old, CHOSEN.neighbours)
    report(f"graph of {rows:,} x {dim}", start)
    result = smooth_by(old, neighbours, CHOSEN)
    report("graph and smoothed rows", start)
    gallery, joined, times = Gallery(Path(), [""] * rows, old, "", exact=0), [], []
    for vector in vectors[rows:]:
        start = time.perf_counter()
        near = gallery.search(vector[None], CHOSEN.neighbours)[1][0]
        joined.append(added(vector, gallery.vectors(near), SmoothedRows(*(values[near] for values in result)), CHOSEN))
        times.append(time.perf_counter() - start)
    del gallery, result
    graph = with_new(neighbours, vectors)
    full = unit_rows(smoothed(vectors, links(graph, cosines(vectors, graph)), CHOSEN.strength)[rows:])
    same = (full * np.array(joined)).sum(1)
    row = {"claim": f"one image added to {rows:,}", "median_s": np.median(times), "slowest_s": max(times)}
    row |= {
        "cosine_to_full_pass": same.mean(),
        "least": same.min(),
        "unsmoothed": (full * vectors[rows:]).sum(1).mean(),
    }
    print(json.dumps({key: round(float(value), 5) if key != "claim" else value for key, value in row.items()}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000 if FULL else 100_000)
    parser.add_argument("--dim", type=int, default=384)
    words, _ = parser.parse_known_args()
    measure(words.rows, words.dim)
