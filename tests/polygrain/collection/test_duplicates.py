import numpy as np

from polygrain.collection.duplicates import Pair, duplicates, graph_of, odd
from polygrain.compute.vectors import unit_rows


def find(vectors: np.ndarray, above: float) -> list[Pair]:
    return duplicates(vectors, graph_of(vectors), above)


def test_duplicates__equal_a_loop_over_all_pairs() -> None:
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(15, 6))
    vectors = unit_rows(np.vstack([vectors, vectors[:5] + 0.05 * generator.normal(size=(5, 6))]).astype(np.float32))
    expected = {(i, j): vectors[i] @ vectors[j] for i in range(20) for j in range(i) if vectors[i] @ vectors[j] >= 0.9}
    result = find(vectors, 0.9)
    assert {(row.other, row.image) for row in result} == set(expected)
    assert [row.cosine for row in result] == sorted((row.cosine for row in result), reverse=True)
    np.testing.assert_allclose(sorted(row.cosine for row in result), sorted(expected.values()), atol=1e-6)
    assert graph_of(vectors).closest == max(row.cosine for row in result)


def test_duplicates__all_pairs_of_more_copies_than_neighbours_are_looked_at() -> None:
    generator = np.random.default_rng(0)
    copies = np.eye(1, 8).repeat(60, 0) + 0.01 * generator.normal(size=(60, 8))
    vectors = unit_rows(np.vstack([copies, generator.normal(size=(30, 8))]).astype(np.float32))
    pairs = {(row.image, row.other) for row in find(vectors, 0.98)}
    assert pairs >= {(i, j) for j in range(60) for i in range(j)}
    assert all(vectors[i] @ vectors[j] >= 0.97 for i, j in pairs)


def test_duplicates__of_more_than_can_be_listed_the_most_alike(monkeypatch) -> None:
    vectors = unit_rows(np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32))
    whole = find(vectors, 0.0)
    monkeypatch.setattr("polygrain.collection.duplicates.MOST", 5)
    assert find(vectors, 0.0)[:5] == whole[:5] and len(find(vectors, 0.0)) <= 10 < len(whole)


def test_odd__an_odd_image_is_none_of_its_nearest_own() -> None:
    """All others are nearer to one another than to it, and more of them than neighbours are looked at."""
    same = np.eye(1, 4, dtype=np.float32).repeat(30, 0) + 0.05 * np.random.default_rng(0).normal(size=(30, 4))
    vectors = unit_rows(np.vstack([same, [[1, 1, 0, 0]]]).astype(np.float32))
    (row,) = odd(graph_of(vectors))
    assert (row.kind, row.image) == ("odd", 30) and 0.6 < row.cosine < 0.9
    alone = graph_of(vectors[:1])
    assert odd(alone) == duplicates(vectors[:1], alone, 0.5) == [] and alone.closest is None
