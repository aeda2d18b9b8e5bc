import logging

import faiss
import numpy as np
import pytest

from polygrain.retrieval import approximate, neighbours
from polygrain.retrieval.approximate import calibrate, choose, inverted_file, nearest_others
from polygrain.store import arrays
from polygrain.store.mapped_rows import Subset


def draw(n, dim=16, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n // 30, dim))
    return (centres[rng.integers(len(centres), size=n)] + 0.8 * rng.normal(size=(n, dim))).astype(np.float32)


def plain(x, k):
    """All cosines of a row sorted, one row at a time."""
    unit = x.astype(np.float64) / np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True)
    out = []
    for i, row in enumerate(unit):
        cosines = unit @ row
        cosines[i] = -np.inf
        out.append(np.argsort(-cosines, kind="stable")[:k])
    return np.array(out)


def share(neighbours, exact):
    return np.mean([np.isin(*pair).mean() for pair in zip(exact, neighbours, strict=True)])


def test_nearest_others__has_the_recall_that_it_says():
    x = draw(2_000)
    graph = nearest_others(x, 5, "ivf", 0.95)
    true = share(graph.neighbours, plain(x, 5))
    assert true >= 0.95
    assert abs(true - graph.recall) < 4 * graph.error + 0.005 and graph.asked == 1_000
    assert not (graph.neighbours == np.arange(2_000)[:, None]).any()
    assert all(len(set(row)) == 5 for row in graph.neighbours.tolist())


def test_nearest_others__a_higher_recall_takes_more_effort():
    x = draw(1_500)
    low, high = (nearest_others(x, 5, "ivf", recall) for recall in (0.6, 0.99))
    assert low.effort < high.effort and low.recall < high.recall
    assert share(low.neighbours, plain(x, 5)) < 0.99


def test_nearest_others__reads_a_store_in_blocks_and_is_the_same_twice(tmp_path, monkeypatch):
    x, which = draw(1_200), np.arange(0, 1_200, 2)
    arrays.write(tmp_path / "features.zarr", x)
    expected = nearest_others(x[which], 3, "ivf", 0.95).neighbours
    monkeypatch.setattr(approximate, "BLOCK_ROWS", 100)
    parts = []
    rows = Subset(arrays.open(tmp_path / "features.zarr"), which)
    graph = nearest_others(rows, 3, "ivf", 0.95, shown=lambda blocks: parts.extend(blocks) or blocks)
    np.testing.assert_array_equal(graph.neighbours, expected)
    assert len(parts) == 6 and (parts[0].start, parts[-1].stop) == (0, 600)


def test_nearest_others__small_cells_are_asked_for_more_until_there_are_enough():
    graph = nearest_others(draw(120), 100, "ivf", 0.5)
    assert (graph.neighbours >= 0).all() and all(len(set(row)) == 100 for row in graph.neighbours.tolist())


def test_search__in_all_cells_is_a_plain_search():
    x = draw(300)
    ivf = inverted_file(x, "cosine")
    ivf.nprobe = ivf.nlist
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    ranked = approximate.search(ivf, unit, 9)
    assert share(ranked[:, 1:], plain(x, 8)) > 0.99  # half precision may swap rows that are nearly as near


@pytest.mark.parametrize("recall", [0.5, 0.8, 0.95])
def test_calibrate__is_the_fewest_cells_that_reach_the_recall(recall):
    x = draw(2_000)
    ivf = faiss.index_factory(16, "IVF40,Flat", faiss.METRIC_INNER_PRODUCT)
    ivf.train(x)
    ivf.add(x)
    exact = faiss.knn(x[:200], x, 10, metric=faiss.METRIC_INNER_PRODUCT)[1]
    shares = calibrate(ivf, lambda: ivf.search(x[:200], 10)[1], exact, recall)
    lower, effort = [], ivf.nprobe
    for ivf.nprobe in range(1, effort + 1):
        values = np.array([np.isin(*pair).mean() for pair in zip(exact, ivf.search(x[:200], 10)[1], strict=True)])
        lower.append(values.mean() - 2 * values.std() / 200**0.5 >= recall)
    assert lower == [False] * (effort - 1) + [True]
    np.testing.assert_array_equal(shares, values)


def test_calibrate__warns_where_the_recall_is_out_of_reach(caplog):
    ivf, exact = inverted_file(draw(300), "cosine"), np.arange(30).reshape(10, 3)
    with caplog.at_level(logging.WARNING):
        assert not calibrate(ivf, lambda: exact + 100, exact, 0.9).any()
    assert ivf.nprobe == ivf.nlist and "recall" in caplog.text


def test_calibrate__no_more_cells_than_a_gpu_allows(monkeypatch):
    class OnGPU(faiss.IndexIVFFlat):
        def search(self, queries, k):
            assert 1 <= self.nprobe <= 2048
            return np.zeros((len(queries), k), np.float32), np.full((len(queries), k), -1)

    monkeypatch.setattr(faiss, "GpuIndexIVF", OnGPU, raising=False)
    ivf, exact = OnGPU(faiss.IndexFlatIP(3), 3, 4_000), np.arange(30).reshape(10, 3)
    assert not calibrate(ivf, lambda: approximate.search(ivf, exact.astype(np.float32), 3), exact, 0.9).any()
    assert ivf.nprobe == 2048


def test_nearest_others__more_neighbours_than_a_gpu_allows_are_sought_on_the_cpu(monkeypatch):
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 1)
    monkeypatch.setattr(faiss, "index_cpu_to_gpus_list", lambda ivf, gpus: pytest.fail("on the GPU"), raising=False)
    for module in (approximate, neighbours):
        monkeypatch.setattr(module, "GPU_MOST", 5)
    assert nearest_others(draw(300), 5, "ivf", 0.5).neighbours.shape == (300, 5)


def test_choose__by_size(monkeypatch):
    monkeypatch.setattr(approximate, "EXACT_ROWS", 100)
    chosen = [choose(*given) for given in (("auto", 100), ("auto", 101), ("ivf", 16), ("exact", 10**9))]
    assert chosen == ["exact", "ivf", "ivf", "exact"]
    with pytest.raises(ValueError, match="12 images into 14 cells"):
        choose("ivf", 12)


def test_nearest_others__refuses_nan():
    x = draw(300)
    x[7, 3] = np.nan
    with pytest.raises(ValueError, match="nan in row 7"):
        nearest_others(x, 3, "ivf", 0.9)
