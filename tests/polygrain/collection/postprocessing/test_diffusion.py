"""Smoothing by the neighbour graph against the dense equation."""

import numpy as np
import pytest
import torch
from sklearn.semi_supervised import LabelSpreading

from polygrain.collection.postprocessing import diffusion
from polygrain.collection.postprocessing.diffusion import (
    Smoothing,
    cosines,
    linked,
    links,
    normalised,
    smoothed,
    solve,
    turned_to_link,
)
from polygrain.compute.vectors import unit_rows
from polygrain.retrieval.neighbours import nearest


def rows(n=60, dim=5, seed=0):
    return unit_rows(np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32))


def plain_weights(vectors, k, power):
    """cosine^power where both are among the k nearest of the other."""
    n = len(vectors)
    similar = vectors.astype(float) @ vectors.T.astype(float)
    near = [sorted(set(range(n)) - {i}, key=lambda j: -similar[i, j])[:k] for i in range(n)]
    weights = np.zeros((n, n))
    for i in range(n):
        for j in near[i]:
            if i in near[j] and similar[i, j] > 0:
                weights[i, j] = similar[i, j] ** power
    return weights


def plain_smoothed(vectors, weights, strength):
    degrees = np.where(weights.sum(1) > 0, weights.sum(1), 1)
    walk = weights / np.sqrt(degrees[:, None] * degrees[None])
    return np.linalg.inv(np.eye(len(vectors)) - strength * walk) @ vectors


def graph(vectors, k=6, power=3.0):
    neighbours = nearest(vectors, vectors, k, exclude_self=True)[1]
    return links(neighbours, cosines(vectors, neighbours), power)


@pytest.mark.parametrize(
    ("k", "power", "strength"), [(6, 3.0, 0.9), (6, 1.0, 0.5), (2, 3.0, 0.99), (59, 3.0, 0.9), (6, 3.0, 0.0)]
)
def test_smoothed__solves_the_equation(k, power, strength, monkeypatch):
    monkeypatch.setattr(diffusion, "BLOCK_COLUMNS", 2)
    vectors = rows()
    weights = graph(vectors, k, power)
    expected = plain_weights(vectors, k, power)
    np.testing.assert_allclose(weights.toarray(), expected, atol=1e-6)
    result = smoothed(vectors, weights, strength)
    np.testing.assert_allclose(result, plain_smoothed(vectors, expected, strength), atol=2e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_solve__is_the_same_on_a_gpu():
    vectors = rows()
    matrix = np.float32(0.9) * normalised(graph(vectors))
    found, expected = (solve(matrix, vectors, torch.device(where)) for where in ("cuda", "cpu"))
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_smoothed__spreads_labels_as_scikit_learn():
    vectors = rows()
    weights, labels = graph(vectors), np.full(60, -1)
    labels[:4] = range(4)  # four rows with a class of their own
    spread = LabelSpreading(lambda *_: weights.toarray().astype(float), alpha=0.8, max_iter=1000, tol=1e-9)
    shares = spread.fit(vectors, labels).label_distributions_
    result = smoothed(np.eye(60, 4, dtype=np.float32), weights, 0.8)
    np.testing.assert_allclose(result, shares * result.sum(1, keepdims=True), atol=1e-3)
    assert (result.sum(1) > 0.01).sum() > 30


def test_smoothed__a_row_without_a_mutual_neighbour_stays():
    vectors = unit_rows(np.float32([[1, 0, 0], [1, 0, 0.01], [1, 0.01, 0], [0.1, 1, 0]]))
    weights = graph(vectors, k=2)
    assert weights[[3]].nnz == 0 and weights.nnz == 6
    np.testing.assert_array_equal(smoothed(vectors, weights, 0.9)[3], vectors[3])


@pytest.mark.parametrize("strength", [-0.1, 1.0])
def test_smoothed__a_strength_without_a_solution_is_refused(strength):
    with pytest.raises(ValueError, match="strength"):
        smoothed(rows(), graph(rows()), strength)


def clustered(n=600, dim=32, groups=20):
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(groups, dim))
    return unit_rows((centres[np.arange(n) % groups] + generator.normal(size=(n, dim))).astype(np.float32))


CHOSEN = Smoothing(0.9, 20)


def turned(rows, power=0.125):
    """Quarter-whitened on all axes, in float64."""
    centred = rows.astype(float) - rows.mean(0, dtype=float)
    energies, axes = np.linalg.eigh(np.cov(centred.T))
    return unit_rows(centred @ (axes * energies**-power))


def test_linked__rows_are_linked_quarter_whitened_and_smoothed_as_they_are():
    by, vectors = clustered() + 0.5, rows(600, seed=4)
    expected = plain_smoothed(vectors, plain_weights(turned(by), 20, 3.0), 0.9)
    np.testing.assert_allclose(linked(by, vectors, CHOSEN), unit_rows(expected), atol=5e-3)


def test_linked__a_zero_row_stays_and_harms_no_other():
    vectors = clustered(60)
    vectors[3] = 0
    result = linked(vectors, vectors, Smoothing(0.9, 5))
    assert not result[3].any()
    np.testing.assert_allclose(np.linalg.norm(np.delete(result, 3, 0), axis=1), 1, atol=1e-5)


def test_linked__of_few_rows_all_others_are_neighbours():
    expected = plain_smoothed(rows(3), plain_weights(turned_to_link(rows(3)), 2, 3.0), 0.9)
    np.testing.assert_allclose(linked(rows(3), rows(3), CHOSEN), unit_rows(expected), atol=5e-3)


def test_linked__rows_whose_mean_is_nothing():
    both = np.concatenate([np.eye(64, dtype=np.float32), -np.eye(64, dtype=np.float32)])
    assert np.isfinite(linked(both, both, Smoothing(0.8, 4))).all()
