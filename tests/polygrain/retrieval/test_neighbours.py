import faiss
import numpy as np
import pytest
import torch

from polygrain.retrieval import neighbours as module
from polygrain.retrieval.neighbours import nearest, search_by_torch
from tests.helpers.pretended_gpu import pretended_gpu
from tests.polygrain.compute.test_vectors import draw


def plain(queries, gallery, k, metric, exclude_self):
    """All scores, sorted one query at a time."""
    queries, gallery = queries.astype(np.float64), gallery.astype(np.float64)
    scores, indices = [], []
    for i, query in enumerate(queries):
        values = gallery @ query
        if metric == "cosine":
            values = values / np.linalg.norm(query) / np.linalg.norm(gallery, axis=1)
        order = [j for j in np.argsort(-values, kind="stable") if not (exclude_self and i == j)][:k]
        scores.append(values[order])
        indices.append(order)
    return np.array(scores), np.array(indices)


@pytest.mark.parametrize("metric", ["inner_product", "cosine"])
@pytest.mark.parametrize("exclude_self", [False, True])
@pytest.mark.parametrize("rows", [7, 65536])
def test_nearest__equals_sorting_all_scores(metric, exclude_self, rows):
    points = draw(60, 5, 0)
    for k in (1, 8, 59):
        scores, indices = nearest(points, points, k, metric=metric, exclude_self=exclude_self, rows=rows)
        expected = plain(points, points, k, metric, exclude_self)
        assert (indices == expected[1]).all()
        np.testing.assert_allclose(scores, expected[0], atol=1e-5)


GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))


@pytest.mark.parametrize("where", ["cpu", GPU])
@pytest.mark.parametrize("products", [1, 7000, 2**26])
def test_search_by_torch__equals_faiss(where, products):
    queries, gallery = draw(500, 16, 0), draw(3000, 16, 1)
    scores, indices = search_by_torch(queries, gallery, 7, torch.device(where), products)
    expected = faiss.knn(queries, gallery, 7, metric=faiss.METRIC_INNER_PRODUCT)
    np.testing.assert_allclose(scores, expected[0], atol=1e-5)
    assert (indices == expected[1]).all()


def test_nearest__by_torch_is_the_same_also_where_rows_are_equal(monkeypatch):
    """As on a machine with a GPU; among equal rows any may come."""
    monkeypatch.setattr(module, "search", lambda *given: search_by_torch(*given, torch.device("cpu"), 500))
    points = draw(60, 5, 0)
    for k in (1, 8, 59):
        scores, indices = nearest(points, points, k, metric="cosine", exclude_self=True, rows=25)
        expected = plain(points, points, k, "cosine", True)
        assert (indices == expected[1]).all()
        np.testing.assert_allclose(scores, expected[0], atol=1e-5)
    twice = np.repeat(draw(20, 5, 1), 2, 0)
    scores, indices = nearest(twice, twice, 1, metric="cosine", exclude_self=True, rows=25)
    assert (indices[:, 0] == np.arange(40) ^ 1).all() and scores == pytest.approx(1)


def test_nearest__on_a_gpu_has_the_scores_of_a_cpu_where_rows_are_equal():
    """Of equal rows any may come, so no index is compared."""
    points = np.repeat(draw(20, 5, 2), 4, 0)
    expected = nearest(points, points, 6, metric="cosine", rows=30)[0]
    with pretended_gpu():
        scores, indices = nearest(points, points, 6, metric="cosine", rows=30)
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    np.testing.assert_allclose((unit[:, None] * unit[indices]).sum(2), expected, atol=1e-6)
    assert all(len(set(row)) == 6 for row in indices.tolist())


def test_nearest__leaves_self_out_but_not_its_duplicates():
    points = np.repeat(np.eye(3, dtype=np.float32), 4, 0)
    scores, indices = nearest(points, points, 3, exclude_self=True)
    for i in range(12):
        assert sorted(indices[i]) == [j for j in range(i // 4 * 4, i // 4 * 4 + 4) if j != i]
    assert (scores == 1).all()
    # More duplicates than are asked for may push the query itself out of its own list.
    _, indices = nearest(points, points, 1, exclude_self=True)
    assert (indices[:, 0] // 4 == np.arange(12) // 4).all() and (indices[:, 0] != np.arange(12)).all()


def test_nearest__reads_the_gallery_in_blocks():
    class Store:
        shape, longest = (50, 3), 0

        def __getitem__(self, rows):
            block = gallery[rows]
            self.longest = max(self.longest, len(block))
            return block

    gallery, store = draw(50, 3, 3), Store()
    assert (nearest(gallery[:5], store, 6, rows=8)[1] == nearest(gallery[:5], gallery, 6)[1]).all()
    assert store.longest == 8


def test_nearest__cosine_takes_zero_vectors():
    points = np.array([[0, 0], [2, 0], [0, 3]], np.float32)
    scores, indices = nearest(points, points, 3, metric="cosine")
    assert indices[0].tolist() == [0, 1, 2] and (scores[0] == 0).all()
    assert indices[1].tolist() == [1, 0, 2] and scores[1].tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("queries", "gallery", "options", "message"),
    [
        (draw(4, 3, 0), draw(9, 3, 0), {"k": 10}, "k = 10"),
        (draw(4, 3, 0), draw(9, 2, 0), {"k": 1}, "same dim"),
        (draw(4, 3, 0), np.full((9, 3), np.inf, np.float32), {"k": 1, "rows": 2}, "gallery hold inf in row 0"),
    ],
)
def test_nearest__raises_on_what_does_not_fit(queries, gallery, options, message):
    with pytest.raises(ValueError, match=message):
        nearest(queries, gallery, **options)
