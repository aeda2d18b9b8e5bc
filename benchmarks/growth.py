"""Seconds against n for each stage that works on features, as JSON lines and as a plot.

python -m benchmarks.growth [--full] [--plot benchmarks/growth.svg]
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.measure import report, seconds
from benchmarks.mixture import hierarchical_mixture
from stages.core.clustering.lloyd import lloyd
from stages.core.clustering.seeding import nearest_seeds, seed_order
from stages.core.retrieval.metrics import retrieval_metrics
from stages.core.retrieval.neighbours import nearest

SHARE = 8  # points per cluster


def measure(n: int) -> dict[str, float]:
    x, k, found = hierarchical_mixture(n), n // SHARE, {}
    labels = np.arange(n) % (n // 60)
    times = {f"seeds, k = n/{SHARE}": seconds(lambda: found.update(seeds=seed_order(x, k, 0)))}
    start, first = x[found["seeds"].order], nearest_seeds(found["seeds"].records, k, n)
    times[f"pseudo_labels, k = n/{SHARE}"] = seconds(lambda: lloyd(x, start, first, 300, nearest=True))
    times["knn_graph, 5 neighbours"] = seconds(lambda: nearest(x, x, 5, exclude_self=True))
    times["evaluation, classes of 60"] = seconds(lambda: retrieval_metrics(x, labels))
    return times


def plot(rows: dict[int, dict[str, float]], path: str) -> None:
    plt.rcParams["svg.hashsalt"] = "polygrain"
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    sizes = np.array(list(rows), float)
    for stage in rows[int(sizes[0])]:
        axes.loglog(sizes, [times[stage] for times in rows.values()], "o-", label=stage)
    fastest = min(rows[int(sizes[-1])].values())
    axes.loglog(sizes, fastest / 3 * (sizes / sizes[-1]) ** 2, "--", color="grey", label="slope of n²")
    axes.set(xlabel="vectors, 384 dimensions", ylabel="seconds")
    axes.legend()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--plot")
    arguments = parser.parse_args()
    sizes = (10_000, 30_000, 100_000, 300_000) if arguments.full else (2_500, 5_000, 10_000, 20_000)
    measure(1_000)
    rows = {n: measure(n) for n in sizes}
    for n, times in rows.items():
        for stage, taken in times.items():
            report(f"{stage}, n={n}", taken, None)
    if arguments.plot:
        plot(rows, arguments.plot)
