"""Each way to search a collection better against plain loops over its paper's equations."""

import numpy as np
import pytest
import scipy.linalg

from benchmarks import reranking
from benchmarks.reranking import WAYS, Way, choose, neighbours, precision
from polygrain.compute.vectors import unit_rows
from tests.polygrain.retrieval.test_smoothing_choice import clusters

ROWS = clusters(classes=3, per_class=12, dim=6)
QUERIES, ROWS = ROWS[::6], np.delete(ROWS, np.s_[::6], 0)
COUNT = len(ROWS)
NEAR = np.argsort(-(ROWS @ ROWS.T) + 9 * np.eye(COUNT), axis=1, kind="stable")[:, :-1]


def walk(k):
    """Normalised cosine^3 of those that are among the k nearest of each other."""
    weights = np.zeros((COUNT, COUNT))
    for i in range(COUNT):
        for j in NEAR[i, :k]:
            if i in NEAR[j, :k]:
                weights[i, j] = max(ROWS[i] @ ROWS[j], 0) ** 3
    degrees = np.where(weights.sum(1) > 0, weights.sum(1), 1)
    return weights / np.sqrt(np.outer(degrees, degrees))


def nearest(query, rows, k):
    return np.argsort(-(rows @ query), kind="stable")[:k]


def ranked(scores):
    return np.argsort(-np.asarray(scores), kind="stable")[:20]


def by_heat(query, duration=3.0, count=5):
    return ranked(unit_rows(scipy.linalg.expm(duration * (walk(count) - np.eye(COUNT))) @ ROWS) @ query)


def by_expansion(query, asked=4, stored=3):
    def expanded(row, others):
        total = row + sum(max(row @ other, 0) ** 3 * other for other in others)
        return total / np.linalg.norm(total)

    rows = np.stack([expanded(row, ROWS[near[:stored]]) for row, near in zip(ROWS, NEAR, strict=True)])
    return ranked(rows @ expanded(query, rows[nearest(query, rows, asked)]))


def by_diffusion(query, strength=0.8, asked=4, count=6, kept=12):
    whole, scores = walk(count), np.zeros(COUNT)
    for row in nearest(query, ROWS, asked):
        own = [row, *NEAR[row, : kept - 1]]
        column = np.linalg.solve(np.eye(kept) - strength * whole[np.ix_(own, own)], np.eye(kept)[0])
        scores[own] += max(ROWS[row] @ query, 0) ** 3 * column
    return np.lexsort((-(ROWS @ query), -scores))[:20]


def by_reciprocal(query, nearby=6, averaged=3, kept=0.3):
    """The query joins the collection alone; who it pushes out of others' lists, and its own column, is left out."""

    def mutual(i, k):
        return {j for j in [i, *NEAR[i, :k]] if i in [j, *NEAR[j, :k]]}

    def widened(own):
        more = set(own)
        for j in own:
            half = mutual(j, nearby // 2)
            more |= half if len(own & half) >= 2 / 3 * len(half) else set()
        return more

    def weights(vector, own, more):
        values = np.array([np.exp(-((vector - ROWS[j]) ** 2).sum()) if j in own else 0 for j in range(COUNT)])
        return values / (values.sum() + more)

    plain = np.stack([weights(ROWS[i], widened(mutual(i, nearby)), 0) for i in range(COUNT)])
    rows = np.stack([np.mean([plain[j] for j in [i, *NEAR[i, : averaged - 1]]], 0) for i in range(COUNT)])
    near = nearest(query, ROWS, nearby)
    named = {j for j in near if ROWS[j] @ query >= ROWS[j] @ ROWS[NEAR[j, nearby - 1]]}
    given = weights(query, widened(named), 1)
    # A row's own set is averaged with its neighbours', as they are after that.
    given = (given + sum(rows[j] for j in near[: averaged - 1])) / averaged
    jaccard = [1 - np.minimum(given, row).sum() / np.maximum(given, row).sum() for row in rows]
    return ranked(-((1 - kept) * np.array(jaccard) + kept * (2 - 2 * ROWS @ query)))


def by_refinement(query, first=20, count=3, weight=0.5):
    places = nearest(query, ROWS, first)
    better = []
    for i in places:
        own = sorted(places, key=lambda j: -(ROWS[i] @ ROWS[j]))[: count + 1]
        shares = [1 if j == i else weight * (ROWS[i] @ ROWS[j]) for j in own]
        better.append(sum(share * ROWS[j] for share, j in zip(shares, own, strict=True)) / sum(shares))
    better = np.stack(better)
    wide = better[np.argsort(-(better @ query), kind="stable")[: count + 1]].max(0)
    return places[np.argsort(-(better @ query + better @ wide) / 2, kind="stable")]


@pytest.mark.parametrize(
    ("build", "values", "twin"),
    [
        (reranking.heat, {"duration": 3.0, "count": 5}, by_heat),
        (reranking.expansion, {"asked": 4, "stored": 3}, by_expansion),
        (reranking.diffusion, {"strength": 0.8, "asked": 4, "count": 6, "kept": 12}, by_diffusion),
        (reranking.reciprocal, {"nearby": 6, "averaged": 3, "kept": 0.3}, by_reciprocal),
        (reranking.refined, {"first": 20, "count": 3, "weight": 0.5}, by_refinement),
    ],
)
def test_ways__rank_as_their_equations(build, values, twin):
    answers = build(ROWS, neighbours(ROWS), **values).ask(QUERIES, 20)
    np.testing.assert_array_equal(answers, np.stack([twin(query.astype(float)) for query in QUERIES]))
    assert (answers != np.stack([nearest(query, ROWS, 20) for query in QUERIES])).any()


def test_choose__takes_what_the_halves_agree_on():
    rows = clusters(per_class=20, spread=0.1)
    generator = np.random.default_rng(0)
    noise = Way(lambda half, _: reranking.in_a_database(generator.normal(size=half.shape)), {}, (), "")
    assert choose(noise, rows)[0] is reranking.plain
    assert choose(WAYS["smoothing (ours)"], rows)[0] is reranking.ours


def test_precision__is_the_share_of_the_class_among_so_many_nearest():
    labels = np.array([0, 0, 1, 1, 1])
    answers = np.array([[0, 2, 1], [2, 0, 3], [0, 1, 2]])
    assert precision(answers, np.array([0, 1, 9]), labels) == pytest.approx(100 * (1 / 2 + 2 / 3) / 2)
