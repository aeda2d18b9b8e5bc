"""k-means of 20,000 vectors against `sklearn.cluster.KMeans(n_init=1)`, at equal or lower inertia."""

import torch
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from benchmarks.measure import FULL, compare
from benchmarks.mixture import hierarchical_mixture
from polygrain.clustering.lloyd import kmeans

if __name__ == "__main__":
    n = 20_000
    x = hierarchical_mixture(n)
    for k in (256, 1_024) if FULL else (256,):
        found = {}

        def ours(k=k, found=found) -> None:
            found["ours"] = kmeans(x, k, 0)

        def peer(k=k, found=found) -> None:
            with threadpool_limits(torch.get_num_threads()):
                found["peer"] = KMeans(k, n_init=1, random_state=0).fit(x)

        ours(), peer()
        inertia = found["ours"].inertia / found["peer"].inertia_
        assert inertia <= 1
        compare(f"k-means, n={n}, d=384, k={k}", ours, peer, 5, warm=False, in_a_row=True,
                peer="sklearn KMeans(n_init=1)", inertia_ratio=round(inertia, 4),
                iterations=[found["ours"].iterations, found["peer"].n_iter_])  # fmt: skip
