"""k-means of a drawn sample against k-means of all rows: inertia, what was said to be lost at most, processor seconds.

    python -m benchmarks.sampled [--rows 100000] [--dim 128] [--clusters 1024]

Three ways from the same sample of a quarter and of a sixteenth of the rows: sought as one, sought inside coarse cells,
and the latter with rows given to centroids through cells of centroids, as from 65,536 clusters on.
"""

import argparse
import json
import time
from collections.abc import Callable

import numpy as np

from benchmarks.mixture import hierarchical_mixture
from polygrain.clustering import sampled
from polygrain.clustering.lloyd import Clusters, kmeans
from polygrain.clustering.seeding import nearest_seeds, seed_order
from polygrain.retrieval.approximate import Centres
from polygrain.retrieval.neighbours import search


def in_cells(x: np.ndarray, k: int) -> Clusters:
    count = sampled.coarse_cells(k)
    seeds = seed_order(x, count, 0)
    return sampled.two_stage(x, x[seeds.order], nearest_seeds(seeds.records, count, len(x)), k, 0, 100)


def exactly(centroids: np.ndarray, own: np.ndarray) -> sampled.Near:
    return lambda rows: search(rows, centroids, 1, "l2")[1][:, 0]


def through_cells(centroids: np.ndarray, own: np.ndarray) -> sampled.Near:
    return Centres(centroids, own[:1_000], 0.99).near


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--clusters", type=int, default=1_024)
    arguments = parser.parse_args()
    x, k = hierarchical_mixture(arguments.rows, arguments.dim), arguments.clusters
    start = time.process_time()
    full = kmeans(x, k, 0, 100, exchanges=0)
    facts = {"rows": len(x), "dim": arguments.dim, "k": k}
    print(json.dumps(facts | {"way": "all rows", "processor_s": round(time.process_time() - start, 1)}), flush=True)
    ways: dict[str, tuple[Callable, Callable]] = {
        "one": (lambda own, k: kmeans(own, k, 0, 100, exchanges=0), exactly),
        "coarse cells": (in_cells, exactly),
        "coarse cells, and cells of centroids": (in_cells, through_cells),
    }
    for count in (len(x) // 4, len(x) // 16):
        sample = sampled.draw(len(x), count, 0)
        for way, (cluster, near) in ways.items():
            start = time.process_time()
            centroids = cluster(x[sample], k).centroids
            found = sampled.assign(lambda part: (x[part], x[part]), len(x), centroids, near(centroids, x[sample]))
            lost = sampled.loss(found.costs, sample)
            row = {
                "way": way,
                "sample": count,
                "lost": round(found.costs.sum() / full.inertia - 1, 4),
                "lost_at_most": round(lost.at_most, 4),
                "processor_s": round(time.process_time() - start, 1),
            }
            print(json.dumps(facts | row), flush=True)
