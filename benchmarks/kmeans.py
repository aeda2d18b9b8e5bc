"""k-means by shared seeds and Lloyd to the end, against `faiss.Kmeans` and `faiss.SuperKmeans` for each k.

Takes 60,000 points with three k, and pseudo-labels for the paper's eight k; `--full` takes its 133,339 points for them,
and hours. Prints the ratio of seconds and of inertia.
"""

import time
from collections.abc import Callable, Sequence

import faiss
import numpy as np
import torch
from jaxtyping import Float32

from benchmarks.measure import FULL, report
from benchmarks.mixture import PAPER, hierarchical_mixture, scaled
from polygrain.clustering.lloyd import lloyd
from polygrain.clustering.seeding import nearest_seeds, seed_order


def timed(work: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def inertia_of(x: Float32[np.ndarray, "n d"], centroids: Float32[np.ndarray, "k d"]) -> float:
    index = faiss.IndexFlatL2(x.shape[1])
    index.add(centroids)
    return float(index.search(x, 1)[0].sum(dtype=np.float64))


def compare(n: int, ks: Sequence[int], peers: Sequence[str]) -> None:
    """A row for the seeds, for each k and peer, and for all k with each peer."""
    x = hierarchical_mixture(n)
    ours_s, seeds = timed(lambda: seed_order(x, ks[-1], 0))
    report(f"seeds to k={ks[-1]}, n={n}", ours_s, None)
    peers_s = dict.fromkeys(peers, 0.0)
    for k in ks:
        seconds, ours = timed(lambda k=k: lloyd(x, x[seeds.order[:k]], nearest_seeds(seeds.records, k, n), 300))
        ours_s += seconds
        for name in peers:
            # Both sample the points unless told to take all.
            peer = getattr(faiss, name)(x.shape[1], k, max_points_per_centroid=n, min_points_per_centroid=1)
            peer_s, _ = timed(lambda peer=peer: peer.train(x))
            peers_s[name] += peer_s
            report(f"k-means from the seeds, k={k}, n={n}", seconds, peer_s, peer=f"faiss.{name}",
                   iterations=[ours.iterations, len(peer.obj)],
                   inertia_ratio=round(ours.inertia / inertia_of(x, peer.centroids), 4))  # fmt: skip
    for name, peer_s in peers_s.items():
        report(f"k-means with seeds, {len(ks)} k, n={n}, d={x.shape[1]}", ours_s, peer_s, peer=f"faiss.{name}")


if __name__ == "__main__":
    faiss.omp_set_num_threads(torch.get_num_threads())
    rivals = [name for name in ("Kmeans", "SuperKmeans") if hasattr(faiss, name)]
    compare(60_000, (1_024, 4_096, 8_192), rivals)
    n = PAPER if FULL else 8_000
    compare(n, scaled(n), rivals[:1])
