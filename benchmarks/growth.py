"""Seconds against n for each stage that works on features, as JSON lines and as a plot.

python -m benchmarks.growth [--full] [--plot benchmarks/growth.svg]
python -m benchmarks.growth --approximate [--sizes 100000 300000 1000000] [--dim 128] [--no-evaluation]
                            [--plot growth-approximate.svg]

With --approximate: clusters of a drawn sample, an inverted file, and for evaluation 1,024 queries, times n / 1,024.
Then seconds are those of the processor, all threads together, so that others on the machine do not count.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import torch

from benchmarks.measure import report, seconds
from benchmarks.mixture import hierarchical_mixture
from polygrain.clustering import sampled
from polygrain.clustering.lloyd import lloyd
from polygrain.clustering.seeding import nearest_seeds, seed_order
from polygrain.retrieval.approximate import nearest_others
from polygrain.retrieval.index import Index
from polygrain.retrieval.metrics import retrieval_metrics
from polygrain.retrieval.neighbours import nearest, search
from polygrain.runner.progress import progress

SHARE = 8  # points per cluster
# Of the approximate rows: clusters, and the rows that they are sought among.
CLUSTERS, DRAWN = 1_024, 100_000


def measure(n: int) -> dict[str, float]:
    x, k, found = hierarchical_mixture(n), n // SHARE, {}
    labels = np.arange(n) % (n // 60)
    times = {f"seeds, k = n/{SHARE}": seconds(lambda: found.update(seeds=seed_order(x, k, 0)))}
    start, first = x[found["seeds"].order], nearest_seeds(found["seeds"].records, k, n)
    times[f"pseudo_labels, k = n/{SHARE}"] = seconds(lambda: lloyd(x, start, first, 300, nearest=True))
    times["knn_graph, 5 neighbours"] = seconds(lambda: nearest(x, x, 5, exclude_self=True))
    times["evaluation, classes of 60"] = seconds(lambda: retrieval_metrics(x, labels))
    return times


def processor_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def measure_approximate(n: int, dim: int, evaluation: bool) -> dict[str, float]:
    """The same stages with what they do beyond `exact`; k and the sample are the same for every n."""
    x, k, found = hierarchical_mixture(n, dim), CLUSTERS, {}
    sample = sampled.draw(n, min(n, DRAWN), 0)
    own = x[sample]
    times = {f"seeds, k = {k:,}, of a sample": processor_seconds(lambda: found.update(seeds=seed_order(own, k, 0)))}
    start, first = own[found["seeds"].order], nearest_seeds(found["seeds"].records, k, len(own))

    def cluster() -> None:
        centroids = lloyd(own, start, first, 100, nearest=True).centroids
        near = lambda rows: search(rows, centroids, 1, "l2")[1][:, 0]  # noqa: E731
        costs = sampled.assign(lambda part: (x[part], x[part]), n, centroids, near).costs
        found["loss"] = sampled.loss(costs, sample)

    times[f"pseudo_labels, k = {k:,}, of a sample"] = processor_seconds(cluster)

    def graph() -> None:
        found["graph"] = nearest_others(
            x, 5, "ivf", 0.95, shown=partial(progress, description="neighbours", unit="part")
        )

    times["knn_graph, 5 neighbours, ivf"] = processor_seconds(graph)
    if evaluation:
        gallery = Index(torch.from_numpy(x))
        times["evaluation, classes of 60"] = processor_seconds(lambda: gallery.shortlist)
        asked = torch.arange(0, n, max(1, n // 1024))
        gallery.ranked(asked[: gallery.step], 60)
        parts = asked.split(gallery.step)
        taken = processor_seconds(lambda: [gallery.ranked(part, 60) for part in parts])
        times["evaluation, classes of 60"] += taken * n / len(asked)
    facts = {"lost_at_most": round(found["loss"].at_most, 4), "recall": round(found["graph"].recall, 4)}
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"n": n, "dim": dim, "effort": found["graph"].effort, "memory_kib": memory} | facts), flush=True)
    return times


def plot(rows: dict[int, dict[str, float]], path: str, dim: int) -> None:
    plt.rcParams["svg.hashsalt"] = "polygrain"
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    sizes = np.array(list(rows), float)
    for stage in rows[int(sizes[0])]:
        axes.loglog(sizes, [times[stage] for times in rows.values()], "o-", label=stage)
    fastest = min(rows[int(sizes[0])].values())
    axes.loglog(sizes, fastest / 3 * (sizes / sizes[0]) ** 2, "--", color="grey", label="slope of n²")
    axes.set(xlabel=f"vectors, {dim} dimensions", ylabel="seconds")
    axes.legend()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--approximate", action="store_true")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 300_000, 1_000_000])
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--no-evaluation", action="store_true", help="with --approximate: it takes by far the longest")
    parser.add_argument("--plot")
    arguments = parser.parse_args()
    sizes = (10_000, 30_000, 100_000, 300_000) if arguments.full else (2_500, 5_000, 10_000, 20_000)
    rows, dim = {}, arguments.dim if arguments.approximate else 384
    if arguments.approximate:
        sizes = arguments.sizes
    else:
        measure(1_000)
    for n in sizes:
        rows[n] = measure_approximate(n, dim, not arguments.no_evaluation) if arguments.approximate else measure(n)
        for stage, taken in rows[n].items():
            report(f"{stage}, n={n}", taken, None)
    if arguments.plot:
        plot(rows, arguments.plot, dim)
