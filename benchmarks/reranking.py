"""Ways to search a collection better by its own images: others' beside ours, with the same vectors and queries.

python -m benchmarks.reranking profiles/NAME

NAME is a profile of labelled tasks, with the protocol `collection`, whose `choice` and `features` are there. Each way
is written from its paper. It takes its published values; or of these, a few others, and none at all, those by which the
halves of the axes agree most on images of the collection that are held back, and by which they do not agree less on the
nearest 10 (retrieval/smoothing_choice.py). No label is needed for that. Times are CPU seconds of one thread, beside the
search for neighbours, which all ways need.
"""

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array, eye_array
from scipy.sparse.linalg import LinearOperator, cg, expm_multiply

from polygrain.compute.vectors import unit_rows
from polygrain.encoder.model import load
from polygrain.encoder.stored import open_features
from polygrain.retrieval.neighbours import nearest
from polygrain.retrieval.smoothing import Smoothing, cosines, links, mixed, normalised, smooth_by
from polygrain.retrieval.smoothing_choice import GRAINED, SHARE, deal, differs, smooth
from polygrain.selection.grain import cut
from polygrain.store.collection import read_tables

RANKED = 1000  # neighbours of an image that are known, at most
MILLION = 1_000_000


class Built(NamedTuple):
    """What a server holds of a collection, bytes, and how it answers: queries and a depth to rows, nearest first."""

    size: int
    ask: Callable[[np.ndarray, int], np.ndarray]


class Way(NamedTuple):
    build: Callable[..., Built]
    published: Mapping[str, float]
    compared: tuple[Mapping[str, float], ...]
    served: str


def in_a_database(rows: np.ndarray) -> Built:
    """Any vector database: the rows, and one search."""
    return Built(rows.nbytes, lambda queries, depth: nearest(queries, rows, depth)[1])


def plain(rows: np.ndarray, ranked: np.ndarray) -> Built:
    return in_a_database(rows)


def ours(rows: np.ndarray, ranked: np.ndarray, strength: float, count: int) -> Built:
    return in_a_database(smooth_by(rows, ranked[:, :count], Smoothing(strength, count)))


def heat(rows: np.ndarray, ranked: np.ndarray, duration: float, count: int) -> Built:
    """exp(-t (I - S)) Z on the graph that we use.

    Kondor and Lafferty, "Diffusion kernels on graphs and other discrete input spaces", 2002.
    """
    walk = graph(rows, ranked[:, :count])
    return in_a_database(unit_rows(expm_multiply(duration * (walk - eye_array(len(rows))), rows)).astype(np.float32))


def expansion(rows: np.ndarray, ranked: np.ndarray, asked: int, stored: int, power: float = 3.0) -> Built:
    """Each image, and each query, with its nearest added, weighed by cosine^power.

    Radenovic et al., "Fine-tuning CNN image retrieval with no human annotation", 2018; for the images Gordo et al.,
    "End-to-end learning of deep visual representations", 2017.
    """
    augmented = mixed(rows, rows[ranked[:, :stored]], power)

    def ask(queries: np.ndarray, depth: int) -> np.ndarray:
        near = nearest(queries, augmented, min(asked, len(rows)))[1]
        return nearest(mixed(queries, augmented[near], power), augmented, depth)[1]

    return Built(rows.nbytes, ask)


def diffusion(rows: np.ndarray, ranked: np.ndarray, strength: float, asked: int, count: int, kept: int) -> Built:
    """A column of (I - a S)^-1 for each image, solved among its nearest only, and summed over a query's nearest.

    Yang et al., "Efficient image retrieval via decoupling diffusion into online and offline processing", 2019.
    """
    walk, columns, places = graph(rows, ranked[:, :count]), [], []
    for row, near in enumerate(ranked[:, : kept - 1]):
        place = np.concatenate([[row], near])
        local = strength * walk[place][:, place]
        system = LinearOperator(local.shape, lambda x, local=local: x - local @ x, dtype=np.float64)
        columns.append(cg(system, np.eye(1, len(place)).ravel(), rtol=1e-6, maxiter=20)[0].astype(np.float32))
        places.append(place)
    starts = np.arange(len(rows) + 1) * len(places[0])
    sparse = csr_array((np.concatenate(columns), np.concatenate(places), starts), shape=(len(rows), len(rows)))

    def ask(queries: np.ndarray, depth: int) -> np.ndarray:
        scores, near = nearest(queries, rows, min(asked, len(rows)))
        starts = np.arange(len(queries) + 1) * near.shape[1]
        weights = csr_array((np.maximum(scores, 0).ravel() ** 3, near.ravel(), starts), (len(queries), len(rows)))
        # What no column reaches is ranked by its cosine.
        return np.lexsort((-queries @ rows.T, -(weights @ sparse).toarray()), axis=1)[:, :depth]

    return Built(rows.nbytes + sparse.data.nbytes + sparse.indices.astype(np.int32).nbytes, ask)


def reciprocal(rows: np.ndarray, ranked: np.ndarray, nearby: int, averaged: int, kept: float) -> Built:
    """Jaccard distances of the sets of images that name each other among their nearest, and some of the distance.

    Zhong et al., "Re-ranking person re-identification with k-reciprocal encoding", 2017. A query joins alone: it does
    not see other queries.
    """
    count, nearby = len(rows), min(nearby, ranked.shape[1])
    own = np.hstack([np.arange(count)[:, None], ranked])

    def mutual(k: int) -> csr_array:
        named = csr_array((np.ones(count * (k + 1)), own[:, : k + 1].ravel(), np.arange(count + 1) * (k + 1)))
        return named.multiply(named.T).tocsr()

    def encoded(vectors: np.ndarray, sets: csr_array, half: csr_array) -> csr_array:
        """exp(-distance) on each set, widened by the half sets that it holds two thirds of."""
        common = (sets @ half.T).multiply(sets).tocoo()
        held = common.data >= 2 / 3 * half.sum(1)[common.col]
        more = csr_array((held[held].astype(float), (common.row[held], common.col[held])), shape=sets.shape) @ half
        place = (sets + more).tocoo()
        distance = 2 - 2 * np.einsum("pd,pd->p", vectors[place.row], rows[place.col])
        return csr_array((np.exp(-distance), (place.row, place.col)), shape=sets.shape)

    half = mutual(max(1, round(nearby / 2)))
    weights = encoded(rows, mutual(nearby), half)
    weights = weights.multiply(1 / weights.sum(1)[:, None]).tocsr()
    width = min(averaged, own.shape[1])
    mean = csr_array((np.full(count * width, 1 / width), own[:, :width].ravel(), np.arange(count + 1) * width))
    weights = (mean @ weights).tocsc()
    sums, by_row = weights.sum(1), weights.tocsr()
    farthest = np.einsum("nd,nd->n", rows, rows[ranked[:, nearby - 1]])

    def ask(queries: np.ndarray, depth: int) -> np.ndarray:
        scores, near = nearest(queries, rows, nearby)
        row, rank = np.nonzero(scores >= farthest[near])
        sets = csr_array((np.ones(len(row)), (row, near[row, rank])), shape=(len(queries), count))
        given = encoded(queries, sets, half)
        # A query is in its own set, at distance 0.
        given = given.multiply(1 / (1 + given.sum(1))[:, None]).tocsr()
        result = np.empty((len(queries), depth), np.int64)
        for i, query in enumerate(queries):
            own = (given[[i]] + by_row[near[i, : width - 1]].sum(0)[None]) / width if width > 1 else given[[i]]
            own = csr_array(own)
            part = weights[:, own.indices]
            shared = np.bincount(part.indices, np.minimum(part.data, np.repeat(own.data, np.diff(part.indptr))), count)
            jaccard = 1 - shared / (own.sum() + sums - shared)
            result[i] = np.argsort((1 - kept) * jaccard + kept * (2 - 2 * rows @ query), kind="stable")[:depth]
        return result

    return Built(rows.nbytes + weights.nnz * 8, ask)


def refined(rows: np.ndarray, ranked: np.ndarray, first: int, count: int, weight: float) -> Built:
    """The first images of a query are mixed with their nearest among these, the query with its first; mean of both.

    Shao et al., "Global features are all you need for image retrieval and reranking", 2023. The query becomes the
    largest of each number over its first refined images.
    """

    def ask(queries: np.ndarray, depth: int) -> np.ndarray:
        found = nearest(queries, rows, min(first, len(rows)))[1]
        for query, places in zip(queries, found, strict=True):
            near, size = rows[places], min(count, len(places) - 1)
            similar = near @ near.T
            others = np.argsort(-similar, axis=1, kind="stable")[:, : size + 1]
            shares = np.take_along_axis(similar, others, 1) * np.where(np.arange(size + 1) > 0, weight, 1)
            better = np.einsum("mk,mkd->md", shares, near[others]) / shares.sum(1, keepdims=True)
            once = better @ query
            wide = better[np.argsort(-once, kind="stable")[: size + 1]].max(0)
            places[:] = places[np.argsort(-(once + better @ wide), kind="stable")]
        return found[:, :depth]

    return Built(rows.nbytes, ask)


def graph(rows: np.ndarray, neighbours: np.ndarray) -> csr_array:
    """Mutual neighbours by cosine^3, normalised: ours, and diffusion's as published."""
    return normalised(links(neighbours, cosines(rows, neighbours)))


ANY = Way(lambda rows, ranked: in_a_database(smooth(rows)), {}, (), "yes")
WAYS = {
    "plain": Way(plain, {}, (), "yes"),
    "alpha query expansion + DBA": Way(
        expansion, {"asked": 50, "stored": 20}, ({"asked": 10, "stored": 10}, {"asked": 5, "stored": 5}), "two searches"
    ),
    "k-reciprocal": Way(
        reciprocal,
        {"nearby": 20, "averaged": 6, "kept": 0.3},
        tuple({"nearby": k, "averaged": 6, "kept": 0.3} for k in (10, 40)),
        "no",
    ),
    "diffusion, truncated": Way(
        diffusion,
        {"strength": 0.99, "asked": 10, "count": 50, "kept": 1000},
        tuple({"strength": a, "asked": 10, "count": 50, "kept": 1000} for a in (0.8, 0.9)),
        "no",
    ),
    "SuperGlobal's refinement": Way(
        refined,
        {"first": 400, "count": 9, "weight": 0.15},
        tuple({"first": 400, "count": 9, "weight": b} for b in (0.5, 1.0)),
        "no",
    ),
    "heat kernel": Way(
        heat, {"duration": 1.0, "count": 20}, tuple({"duration": t, "count": 20} for t in (3.0, 10.0)), "yes"
    ),
    "smoothing (ours)": Way(
        ours,
        {"strength": 0.9, "count": 20},
        tuple({"strength": a, "count": 20} for a in GRAINED.strengths if a != 0.9),
        "yes",
    ),
}


def choose(way: Way, rows: np.ndarray, seed: int = 0) -> tuple[Callable[..., Built], Mapping[str, float]]:
    """The values whose two halves agree most on held-back rows, or no way at all, without labels."""
    order = np.random.default_rng(seed).permutation(len(rows))
    asked, searched = np.split(order, [min(GRAINED.queries, len(order) // SHARE)])
    depths = [min(depth, len(searched) // SHARE) for depth in (GRAINED.depth, GRAINED.guard)]
    halves = [(half[asked], half[searched]) for half in deal(rows, False)]
    tried = [(plain, {}), *((way.build, values) for values in (way.published, *way.compared))]
    shares = [np.zeros((2, len(asked))) for _ in tried]
    ranked = [neighbours(half) for _, half in halves]
    for one, (build, values) in zip(shares, tried, strict=True):
        found = [
            build(half, near, **values).ask(queries, depths[0])
            for (queries, half), near in zip(halves, ranked, strict=True)
        ]
        for place, depth in enumerate(depths):
            one[place] = [np.isin(*pair).mean() for pair in zip(*(a[:, :depth] for a in found), strict=True)]
    safe = [i for i, one in enumerate(shares) if differs(shares[0][1] - one[1]) <= GRAINED.errors]
    return tried[max(safe, key=lambda i: shares[i][0].mean())]


def neighbours(rows: np.ndarray) -> np.ndarray:
    return nearest(rows, rows, min(RANKED, len(rows) - 1), exclude_self=True)[1]


def precision(answers: np.ndarray, asked: np.ndarray, labels: np.ndarray) -> float:
    """Mean R-Precision of queries with labels `asked` among rows with `labels`, percent."""
    hits, relevant = labels[answers] == asked[:, None], (labels == asked[:, None]).sum(1)
    counted = hits & (np.arange(answers.shape[1]) < relevant[:, None])
    return 100 * float((counted.sum(1)[relevant > 0] / relevant[relevant > 0]).mean())


def measure(way: Way, chosen: bool, tasks: list[tuple[np.ndarray, ...]]) -> tuple[list[float], list[float]]:
    """R-Precision of each task; and CPU seconds and bytes for a million rows, and CPU milliseconds of a query."""
    scores, costs = [], np.zeros(5)
    for rows, labels, queries, asked, ranked in tasks:
        build, values = choose(way, rows) if chosen else (way.build, way.published)
        start = time.process_time()
        built = build(rows, ranked, **values)
        middle = time.process_time()
        answers = built.ask(queries, int(np.unique(labels, return_counts=True)[1].max()))
        costs += [middle - start, built.size, time.process_time() - middle, len(rows), len(queries)]
        scores.append(precision(answers, asked, labels))
    built, size, answered, count, queried = costs
    return scores, [built / count * MILLION, size / count * MILLION, 1000 * answered / queried]


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    model, names = load(folder / "data/choice"), sorted(path.name for path in (folder / "data/images").iterdir())
    collection, stored = read_tables(folder / "data/images", names), open_features(folder / "data/features", names)
    vectors, tasks, grained, plainer = stored.embed(model, np.arange(len(collection.tasks))), [], [], []
    outputs = unit_rows(stored.rows[:].astype(np.float32)[:, : stored.facts["widths"][0]])
    for task in names:
        own, asked = (
            np.flatnonzero((collection.tasks == task) & of) for of in (collection.is_train, collection.is_query)
        )
        labels = collection.labels[own], collection.labels[asked]
        grain = model.config.grains.get(task)
        for where, given in ((tasks, vectors), (grained, cut(vectors, grain)), (plainer, outputs)):
            rows, queries = given[own], given[asked]
            where.append((rows, labels[0], queries, labels[1], neighbours(rows)))
    print(f"{len(vectors):,} images of {', '.join(names)}, {vectors.shape[1]} axes; mean over tasks (worst less plain)")
    heads = ["way", "as published", "chosen", "s offline", "GB", "ms a query", "a plain vector database serves it"]
    print("| " + " | ".join(heads) + " |\n|---|" + "---:|" * 5 + "---|", flush=True)
    lines = [("plain, cut to its grain", WAYS["plain"], grained), *((name, way, tasks) for name, way in WAYS.items())]
    lines += [("smoothing, as `smooth` chooses and links", ANY, tasks)]
    lines += [("the encoder's own vectors", WAYS["plain"], plainer), ("those, by `smooth`", ANY, plainer)]
    for name, way, given in lines:
        before, _ = measure(WAYS["plain"], False, plainer if given is plainer else tasks)
        (fixed, costs), (best, _) = (measure(way, is_chosen, given) for is_chosen in (False, bool(way.compared)))
        cells = [f"{np.mean(of):.1f} ({np.min(np.subtract(of, before)):+.1f})" for of in (fixed, best)]
        cells += [f"{costs[0]:,.0f}", f"{costs[1] / 1e9:.1f}", f"{costs[2]:.1f}", way.served]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
