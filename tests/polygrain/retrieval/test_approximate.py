import logging
from types import SimpleNamespace

import faiss
import numpy as np
import pytest

from polygrain.retrieval import approximate
from polygrain.retrieval.approximate import (
    Centres,
    Hnsw,
    Ivf,
    choose,
    least_effort,
    nearest_others,
    on_gpu,
    sampled_recall,
)
from polygrain.store import arrays
from polygrain.store.mapped_rows import Chosen
from tests.helpers.torchrun import torchrun


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


def share(found, exact):
    return np.mean([np.isin(*pair).mean() for pair in zip(exact, found, strict=True)])


@pytest.mark.parametrize("index", ["ivf", "hnsw"])
def test_nearest_others__has_the_recall_that_it_says(index):
    x = draw(2_000)
    exact, found = plain(x, 5), nearest_others(x, 5, index, 0.95)
    true = share(found.neighbours, exact)
    assert true >= 0.95
    assert abs(true - found.recall) < 4 * found.error + 0.005 and found.asked == 1_000
    assert not (found.neighbours == np.arange(2_000)[:, None]).any()
    assert all(len(set(row)) == 5 for row in found.neighbours.tolist())


def test_nearest_others__a_higher_recall_takes_more_effort():
    x = draw(1_500)
    low, high = (nearest_others(x, 5, "ivf", wanted) for wanted in (0.6, 0.99))
    assert low.effort < high.effort and low.recall < high.recall
    exact = plain(x, 5)
    assert share(low.neighbours, exact) < 0.99 <= share(high.neighbours, exact) + 0.005


@pytest.mark.parametrize("index", ["ivf", "hnsw"])
def test_nearest_others__is_the_same_twice(index):
    x = draw(1_000)
    first, second = (nearest_others(x, 3, index, 0.9) for _ in range(2))
    np.testing.assert_array_equal(first.neighbours, second.neighbours)
    assert first.effort == second.effort


def test_nearest_others__exact_is_exact():
    x = draw(400)
    np.testing.assert_array_equal(nearest_others(x, 4, "auto", 0.95).neighbours, plain(x, 4))


def test_nearest_others__reads_a_store_in_blocks(tmp_path, monkeypatch):
    x, which = draw(1_200), np.arange(0, 1_200, 2)
    arrays.write(tmp_path / "features.zarr", x)
    expected = nearest_others(x[which], 3, "ivf", 0.95).neighbours
    monkeypatch.setattr(approximate, "ROWS", 100)
    parts = []
    rows = Chosen(arrays.open(tmp_path / "features.zarr"), which)
    found = nearest_others(rows, 3, "ivf", 0.95, shown=lambda all_parts: parts.extend(all_parts) or all_parts)
    np.testing.assert_array_equal(found.neighbours, expected)
    assert len(parts) == 6 and (parts[0].start, parts[-1].stop) == (0, 600)


def test_nearest_others__equal_rows_count_as_found():
    x = np.repeat(draw(60), 20, axis=0)
    found = nearest_others(x, 5, "ivf", 0.95)
    assert found.recall == 1 and found.effort == 1
    assert not (found.neighbours == np.arange(1_200)[:, None]).any()


def test_nearest_others__small_cells_are_asked_for_more_until_there_are_enough():
    x = draw(120)
    found = nearest_others(x, 100, "ivf", 0.5)
    assert (found.neighbours >= 0).all() and all(len(set(row)) == 100 for row in found.neighbours.tolist())


@pytest.mark.parametrize("kind", [Ivf, Hnsw])
def test_sampled_recall__is_the_share_of_a_plain_search(kind):
    x, sample = draw(1_000), np.arange(0, 1_000, 10)
    built = kind(x, "cosine")
    measure = sampled_recall(x, sample, 5, "cosine", built)
    for effort in (1, 8):
        found = np.concatenate([built.others(slice(row, row + 1), 5, effort) for row in sample.tolist()])
        assert measure(effort).mean() == pytest.approx(share(found, plain(x, 5)[sample]), abs=1e-9)


def test_nearest_others__warns_where_the_recall_is_out_of_reach(caplog, monkeypatch):
    monkeypatch.setattr(Ivf, "search", lambda self, queries, k, effort: np.tile(np.arange(k), (len(queries), 1)))
    with caplog.at_level(logging.WARNING):
        found = nearest_others(draw(300), 3, "ivf", 0.9)
    assert found.recall < 0.2 and "largest effort" in caplog.text


@pytest.mark.parametrize(("index", "n", "chosen"), [("auto", 10, "exact"), ("hnsw", 10, "hnsw"), ("ivf", 16, "ivf")])
def test_choose__by_size(index, n, chosen):
    assert choose(index, n) == chosen


def test_choose__says_why(caplog, monkeypatch):
    monkeypatch.setattr(approximate, "EXACT_ROWS", 100)
    with caplog.at_level(logging.INFO):
        assert (choose("auto", 100), choose("auto", 101)) == ("exact", "ivf")
    assert "exact: 100 images are no more than 100" in caplog.text
    assert "ivf: 101 images are more than 100" in caplog.text


def test_choose__an_index_that_is_not_known():
    with pytest.raises(ValueError, match="index 'pq'; allowed are auto, exact, ivf, hnsw"):
        choose("pq", 10)


def test_choose__fewer_rows_than_cells():
    with pytest.raises(ValueError, match=r"index ivf puts 12 images into 14 cells.* set index to exact or auto"):
        choose("ivf", 12)


@pytest.mark.parametrize("k", [0, 300])
def test_nearest_others__refuses_k_beyond_the_rows(k):
    with pytest.raises(ValueError, match=rf"k = {k} neighbours among 299 other rows; allowed is 1 to 299"):
        nearest_others(draw(300), k, "ivf", 0.9)


def test_nearest_others__refuses_nan():
    x = draw(300)
    x[7, 3] = np.nan
    with pytest.raises(ValueError, match="nan in row 7"):
        nearest_others(x, 3, "hnsw", 0.9)


def test_least_effort__is_the_first_that_suffices():
    for most in range(1, 20):
        for first in range(1, most + 1):
            assert least_effort(lambda effort, first=first: effort >= first, most) == first
    assert least_effort(lambda effort: False, 7) == 7


def test_on_gpu__takes_the_index_where_faiss_knows_one(monkeypatch):
    index, there, moved = faiss.IndexFlatIP(3), faiss.IndexFlatIP(3), []
    assert on_gpu(index) is index
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 2)
    monkeypatch.setattr(approximate.device, "best", lambda: SimpleNamespace(index=1))
    monkeypatch.setattr(faiss, "index_cpu_to_gpus_list", lambda index, gpus: moved.append(gpus) or there, raising=False)
    assert on_gpu(index) is there and moved == [[1]]


@pytest.mark.parametrize("dim", [16, 384])
def test_centres__give_most_vectors_the_nearest(dim):
    """With many dimensions faiss's distances lose digits, each of its ways others."""
    centroids, x = draw(1_200, dim), draw(3_000, dim, seed=1)
    found = Centres(centroids, x[:500], 0.99)
    nearest = np.array([((centroids - row) ** 2).sum(1).argmin() for row in x])
    assert found.recall >= 0.99 and (found.near(x) == nearest).mean() >= 0.97
    assert found.index.nprobe < found.index.nlist


def test_ivf__equal_rows_are_found_by_index():
    x = np.repeat(draw(60), 10, 0)
    found = Ivf(x, "cosine").search(x[::10] / np.linalg.norm(x[::10], axis=1, keepdims=True), 10, 8)
    assert (found == np.arange(600).reshape(60, 10)).all()


@pytest.mark.parametrize("dim", [16, 7])
def test_ivf__all_cells_and_enough_candidates_are_a_plain_search(dim):
    x = draw(300, dim)
    built = Ivf(x, "cosine")
    found = built.others(slice(0, 300), 8, built.most)
    unit = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float64)
    exact = np.take_along_axis(unit @ unit.T, plain(x, 8), 1)
    # Half precision may swap rows that are nearly as near as each other.
    np.testing.assert_allclose(np.einsum("qd,qkd->qk", unit, unit[found]), exact, atol=1e-3)


def test_ivf__finds_the_same_for_a_row_alone_and_among_others():
    x = draw(3_000, 32)
    built = Ivf(x, "cosine")
    together = built.others(slice(0, 3_000), 5, 4)
    for row in range(0, 3_000, 100):
        np.testing.assert_array_equal(built.others(slice(row, row + 1), 5, 4), together[row : row + 1])


def test_ivf__codes_only_choose_what_is_compared():
    """Of equal codes, and there are but few of them in two dimensions, half precision tells the nearest."""
    angles = np.random.default_rng(0).uniform(0, 0.05, 400)
    x = np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    found = nearest_others(x, 5, "ivf", 0.95)
    assert found.recall >= 0.95


PROGRAM = """
import sys
from pathlib import Path
import numpy as np
from polygrain.compute import processes
from polygrain.compute.distributed import Distributed
from polygrain.retrieval import approximate
from polygrain.retrieval.approximate import nearest_others
from tests.polygrain.retrieval.test_approximate import draw

approximate.ROWS = 250
x, found = draw(900), {}
edges = [0, 500, 500, 900] if processes.count() == 3 else [0, 900]
rows = Distributed(x[slice(*edges[processes.rank() : processes.rank() + 2])])
for index in ("exact", "ivf", "hnsw"):
    for asked in (x, rows):
        graph = nearest_others(asked, 5, index, 0.95)
        kept = [graph.neighbours.tobytes(), graph.recall, graph.error, graph.effort]
        assert found.setdefault(index, kept) == kept, index
(Path(sys.argv[1]) / f"{processes.count()}-{processes.rank()}").write_text(repr(found))
"""


@pytest.mark.slow
def test_nearest_others__three_processes_find_the_graph_of_one_wherever_the_rows_lie(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    for count in (1, 3):
        torchrun(count, program, tmp_path)
    one, *three = ((tmp_path / name).read_text() for name in ("1-0", "3-0", "3-1", "3-2"))
    assert three == [one] * 3
