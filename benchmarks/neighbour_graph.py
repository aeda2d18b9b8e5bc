"""Nearest others of every row at equal recall: cells against cells in products, and faiss asked for row after row.

    python -m benchmarks.neighbour_graph [--full] [--dim 128]

Both have the same cells, and look into as many as a recall of .95 takes. Given are seconds of the processor for the
search alone, and the part of them that the products alone would take.
"""

import argparse
import time

import faiss
import numpy as np
import torch

from benchmarks.growth import processor_seconds
from benchmarks.measure import FULL, report
from benchmarks.mixture import hierarchical_mixture
from stages.core.compute.blocks import blocks
from stages.core.compute.vectors import unit_rows
from stages.core.retrieval.approximate import ROWS, SAMPLE, Ivf, least_effort, others_of
from stages.core.retrieval.neighbours import nearest, without_self

K, RECALL = 5, 0.95


def faiss_of(built: Ivf, x: np.ndarray) -> faiss.Index:
    """faiss's inverted file of the same cells, with rows in half precision."""
    index = faiss.IndexIVFScalarQuantizer(
        built.finder, x.shape[1], built.most, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT, False
    )
    index.train(x[:1])
    for part in blocks(len(x), ROWS):
        index.add(x[part])
    return index


def main(n: int, dim: int) -> None:
    x = unit_rows(hierarchical_mixture(n, dim))
    built = Ivf(x, "cosine")
    index = faiss_of(built, x)
    sample = np.sort(np.random.default_rng(0).choice(n, SAMPLE, replace=False))
    exact = without_self(nearest(x[sample], x, K + 1)[1], sample, K)

    def by_faiss(rows: np.ndarray, effort: int) -> np.ndarray:
        index.nprobe = effort
        return without_self(index.search(x[rows], K + 1)[1], rows, K)

    def by_ours(rows: np.ndarray, effort: int) -> np.ndarray:
        return others_of(lambda which, *more: built.search(x[rows[which]], *more), rows, K, effort, built.most)

    def share(found: np.ndarray) -> float:
        return float(np.mean([np.isin(*pair).mean() for pair in zip(exact, found, strict=True)]))

    efforts = [
        least_effort(lambda effort, way=way: share(way(sample, effort)) >= RECALL, built.most)
        for way in (by_ours, by_faiss)
    ]
    parts = blocks(n, ROWS)
    ours = processor_seconds(lambda: [built.others(part, K, efforts[0]) for part in parts])
    peer = processor_seconds(lambda: [by_faiss(np.arange(n)[part], efforts[1]) for part in parts])
    # Each row of a cell of the average size, and those of as many cells.
    size = n // built.most
    a, b = torch.from_numpy(x[:size]), torch.from_numpy(x[: size * efforts[0]])
    start = time.process_time()
    for _ in range(20):
        torch.mm(a, b.T)
    products = (time.process_time() - start) / 20 * built.most
    found = [by_ours(sample, efforts[0]), by_faiss(sample, efforts[1])]
    facts = {"efforts": efforts, "recall": [round(share(one), 4) for one in found]}
    report(f"neighbour graph by cells, n={n}, d={dim}", ours, peer, products_s=round(products, 4), **facts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--dim", type=int, default=128)
    main(1_000_000 if FULL else 100_000, parser.parse_args().dim)
