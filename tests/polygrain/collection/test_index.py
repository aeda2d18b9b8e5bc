import numpy as np
import pytest

from polygrain.collection.index import Index


def unit(rows: int, dim: int = 8, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(rows, dim)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


@pytest.mark.parametrize("chosen", [None, np.arange(50) % 3 == 1, np.arange(50) < 2, np.zeros(50, bool)])
def test_search__equals_sorting_all(chosen: np.ndarray | None) -> None:
    queries = unit(3, seed=1)
    scores, rows = Index(unit(50)).search(queries, 5, chosen)
    among = np.flatnonzero(chosen) if chosen is not None else np.arange(50)
    for query, query_scores, query_rows in zip(queries, scores, rows, strict=True):
        expected = sorted(among, key=lambda row: -(unit(50)[row] @ query))[:5]
        assert query_rows.tolist() == expected
        np.testing.assert_allclose(query_scores, unit(50)[expected] @ query, atol=1e-6)


def test_search__the_same_where_a_peer_has_replaced_the_search_of_faiss() -> None:
    same = [Index(unit(50)).search(unit(3, seed=1), 5)[1].tolist()]
    import faiss.contrib.torch_utils  # noqa: F401

    assert [Index(unit(50)).search(unit(3, seed=1), 5)[1].tolist()] == same
