import numpy as np

from polygrain.compute.vectors import unit_rows
from polygrain.retrieval import mixing
from polygrain.retrieval.mixing import mixed, mixed_with_others


def rows(n=60, dim=5, seed=0):
    return unit_rows(np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32))


def test_mixed__adds_neighbours_by_their_cosines():
    queries, near = rows(4), rows(12, seed=1).reshape(4, 3, 5)
    result = mixed(queries, near)
    for query, neighbours, row in zip(queries, near, result, strict=True):
        total = query + sum(max(0, float(query @ one)) ** 3 * one for one in neighbours)
        np.testing.assert_allclose(row, total / np.linalg.norm(total), atol=1e-6)


def test_mixed_with_others__adds_the_nearest_of_all_rows(monkeypatch):
    monkeypatch.setattr(mixing, "FETCHED", 7)
    vectors = rows(40)
    for vector, row in zip(vectors, mixed_with_others(vectors, 4), strict=True):
        others = np.argsort(-(vectors @ vector))[1:5]
        np.testing.assert_allclose(row, mixed(vector[None], vectors[others][None])[0], atol=1e-6)
    np.testing.assert_allclose(mixed_with_others(vectors[:2], 10), mixed(vectors[:2], vectors[1::-1, None]), atol=1e-6)
    np.testing.assert_array_equal(mixed_with_others(vectors[:1], 10), vectors[:1])
    np.testing.assert_array_equal(mixed_with_others(vectors, 0), vectors)
