"""Pseudo-labels for the paper's eight k: shared seeds and Lloyd to the end, against `faiss.Kmeans` for each k.

`--full` takes the paper's 133,339 points, and hours. Prints the ratio of seconds and of inertia.
"""

import time

import faiss
import numpy as np
import torch

from benchmarks.measure import FULL, report
from benchmarks.mixture import PAPER, hierarchical_mixture, scaled
from polygrain.clustering.lloyd import lloyd
from polygrain.clustering.seeding import nearest_seeds, seed_order

if __name__ == "__main__":
    n = PAPER if FULL else 8_000
    x = hierarchical_mixture(n)
    faiss.omp_set_num_threads(torch.get_num_threads())
    start = time.perf_counter()
    seeds = seed_order(x, scaled(n)[-1], 0)
    ours_s, peer_s = time.perf_counter() - start, 0.0
    report(f"seeds to k={scaled(n)[-1]}, n={n}", ours_s, None)
    for k in scaled(n):
        start = time.perf_counter()
        ours = lloyd(x, x[seeds.order[:k]], nearest_seeds(seeds.records, k, n), 300)
        middle = time.perf_counter()
        peer = faiss.Kmeans(x.shape[1], k, max_points_per_centroid=n, min_points_per_centroid=1)
        peer.train(x)
        end = time.perf_counter()
        inertia = ours.inertia / float(peer.index.search(x, 1)[0].sum(dtype=np.float64))
        report(f"k-means from the seeds, k={k}, n={n}", middle - start, end - middle, peer="faiss.Kmeans",
               iterations=[ours.iterations, len(peer.obj)], inertia_ratio=round(inertia, 4))  # fmt: skip
        ours_s, peer_s = ours_s + middle - start, peer_s + end - middle
    report(f"pseudo-labels with seeds, {len(scaled(n))} k, n={n}, d={x.shape[1]}", ours_s, peer_s, peer="faiss.Kmeans")
