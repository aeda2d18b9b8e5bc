"""k-means of 20,000 vectors against `sklearn.cluster.KMeans(n_init=1)`, at equal or lower inertia."""

import time

import torch
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from benchmarks.measure import FULL, report
from benchmarks.mixture import hierarchical_mixture
from stages.core.kmeans import kmeans

if __name__ == "__main__":
    n = 20_000 if FULL else 10_000
    x = hierarchical_mixture(n)
    kmeans(x[:500], 5, 0)
    KMeans(5, n_init=1).fit(x[:500])
    for k in (256, 1_024) if FULL else (256,):
        start = time.perf_counter()
        ours = kmeans(x, k, 0)
        middle = time.perf_counter()
        with threadpool_limits(torch.get_num_threads()):
            peer = KMeans(k, n_init=1, random_state=0).fit(x)
        end = time.perf_counter()
        facts = {"iterations": [ours.iterations, peer.n_iter_], "inertia_ratio": round(ours.inertia / peer.inertia_, 4)}
        report(f"k-means, n={n}, d=384, k={k}", middle - start, end - middle, peer="sklearn KMeans(n_init=1)", **facts)
        assert ours.inertia <= peer.inertia_
