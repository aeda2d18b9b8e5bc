import numpy as np
import pytest
import torch
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

from polygrain.retrieval import metrics
from polygrain.retrieval.metrics import collection_metrics, query_metrics, retrieval_metrics, score
from tests.helpers.pretended_gpu import pretended_gpu
from tests.polygrain.compute.test_vectors import draw


def circle(degrees):
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)


def plain(embeddings, labels):
    """One query at a time, the formulas as they are written."""
    result = []
    for q in range(len(embeddings)):
        scores = embeddings @ embeddings[q]
        others = [j for j in np.argsort(-scores, kind="stable") if j != q]
        relevant = [labels[j] == labels[q] and labels[q] != -1 for j in others]
        r = sum(relevant)
        if r == 0:
            result.append((np.nan, np.nan, np.nan, others))
            continue
        average = sum(sum(relevant[:i]) / i for i in range(1, r + 1) if relevant[i - 1]) / r
        result.append((sum(relevant[:r]) / r, average, float(relevant[0]), others))
    return [np.array(column) for column in zip(*result, strict=True)]


BLOCKS = (2**25, 256), (70, 7)
GROUPS = (40, 1), (40, 1000), (metrics.GROUP, 1)
# Every pair of two values of these four.
PAIRS = [
    (classes, nearest, *BLOCKS[(i + j) % 2], *GROUPS[(i + j) % 3])
    for i, classes in enumerate((1, 2, 7, 60))
    for j, nearest in enumerate((0, 5, 79))
]


@pytest.mark.parametrize(("classes", "nearest", "cosines", "queries", "many", "deep"), PAIRS)
def test_query_metrics__equals_the_plain_loop(classes, nearest, cosines, queries, many, deep, monkeypatch):
    monkeypatch.setattr(metrics, "MANY", many)
    monkeypatch.setattr(metrics, "DEEP", deep)
    monkeypatch.setattr(metrics, "COSINES", cosines)  # the gallery passes by in one block, or in blocks of 10
    monkeypatch.setattr(metrics, "QUERIES", queries)
    embeddings = draw(80, 6, classes)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    labels = np.random.default_rng(0).integers(-1, classes, 80)
    ours, expected = query_metrics(embeddings, labels, nearest), plain(embeddings, labels)
    for name, values in zip(("r_precision", "map_at_r", "recall_at_1"), expected, strict=False):
        np.testing.assert_allclose(getattr(ours, name), values, rtol=1e-12)
    # Of two images that are equally near but for rounding, any may come first.
    cosines = embeddings @ embeddings.T
    found, wanted = (np.take_along_axis(cosines, rows[:, :nearest], 1) for rows in (ours.nearest, expected[3]))
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert all(len({*row, query}) == nearest + 1 for query, row in enumerate(ours.nearest.tolist()))


def test_unit_vectors__copies_none_that_are_of_unit_length():
    rows = np.concatenate([draw(50, 3072, 0), np.zeros((1, 3072), np.float32)])
    unit = metrics.unit_vectors(rows)
    np.testing.assert_allclose(unit.norm(dim=1).cpu(), [1] * 50 + [0], atol=1e-6)
    assert metrics.unit_vectors(unit).data_ptr() == unit.data_ptr() != torch.from_numpy(rows).data_ptr()
    np.testing.assert_allclose(metrics.unit_vectors(unit * 1.001).cpu(), unit.cpu(), atol=1e-6)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("depth", [1, 300 // metrics.MANY, metrics.DEEP - 1, metrics.DEEP, 299, 300])
def test_largest__equals_sorted_rows(threads, depth, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    rows = 2 * metrics.SELECTED + 5
    values = torch.from_numpy(np.random.default_rng(0).permutation(rows * 300).reshape(rows, 300)).float()
    values[:, 7] = -torch.inf
    values[:, [8, 299]] += 1e6  # one in no group
    best, columns = metrics.largest(values, depth)
    expected = values.sort(1, descending=True)
    assert best.equal(expected.values[:, :depth]) and columns.equal(expected.indices[:, :depth])


def test_metrics__of_arrays_are_computed_on_a_gpu(monkeypatch):
    x, labels, where, largest = draw(40, 5, 0), np.arange(40) % 4, set(), metrics.largest
    expected = query_metrics(x, labels, 3), collection_metrics(x[:9], x[9:], labels[:9], labels[9:], 3)
    monkeypatch.setattr(metrics, "largest", lambda *a: (where.add(a[0].device.type), largest(*a))[1])
    with pretended_gpu():
        given = query_metrics(x, labels, 3), collection_metrics(x[:9], x[9:], labels[:9], labels[9:], 3)
        assert score(x, labels, np.full(40, "test"))["r_precision"] == pytest.approx(given[0].r_precision.mean())
    assert where == {"cuda"}
    for ours, cpu in zip(given, expected, strict=True):
        np.testing.assert_allclose(ours.map_at_r, cpu.map_at_r)
        np.testing.assert_array_equal(ours.nearest, cpu.nearest)


def test_query_metrics__gives_the_numbers_worked_by_hand():
    # On a circle: a at 0, 10, 30 degrees, b at 16, 90, c alone at 200.
    embeddings = circle([0, 10, 30, 16, 90, 200]) * np.array([[1], [5], [0.1], [2], [3], [7]], np.float32)
    scores = query_metrics(embeddings, ["a", "a", "a", "b", "b", "c"], 2)
    # Query 0: 10 (a), 16 (b), 30 (a). Query 1: 16 (b), 0 (a). Query 2: 16 (b), 10 (a). Query 3: 10. Query 4: 30.
    np.testing.assert_allclose(scores.r_precision, [1 / 2, 1 / 2, 1 / 2, 0, 0, np.nan])
    np.testing.assert_allclose(scores.map_at_r, [1 / 2, 1 / 4, 1 / 4, 0, 0, np.nan])
    np.testing.assert_allclose(scores.recall_at_1, [1, 0, 0, 0, 0, np.nan])
    assert scores.nearest[:4].tolist() == [[1, 3], [3, 0], [3, 1], [1, 2]]
    means = retrieval_metrics(embeddings, ["a", "a", "a", "b", "b", "c"])
    assert means == pytest.approx(
        {"r_precision": 0.3, "map_at_r": 0.2, "recall_at_1": 0.2, "queries": 5, "left_out": 1}
    )


@pytest.mark.parametrize(("n", "classes"), [(300, 3), (300, 80)])
def test_retrieval_metrics__equals_pytorch_metric_learning(n, classes):
    embeddings = torch.nn.functional.normalize(torch.from_numpy(draw(n, 16, 0)), dim=1)
    labels = torch.cat(
        [
            torch.arange(classes).repeat(2),
            torch.from_numpy(np.random.default_rng(0).integers(0, classes, n - 2 * classes)),
        ]
    )
    names = {"r_precision": "r_precision", "map_at_r": "mean_average_precision_at_r", "recall_at_1": "precision_at_1"}
    theirs = AccuracyCalculator(include=tuple(names.values()), k="max_bin_count").get_accuracy(embeddings, labels)
    for given in (retrieval_metrics(embeddings, labels), retrieval_metrics(embeddings.numpy(), labels.numpy())):
        for name, peer in names.items():
            assert given[name] == pytest.approx(theirs[peer], abs=1e-6)
        assert (given["queries"], given["left_out"]) == (n, 0)


def test_query_metrics__leaves_unlabelled_images_out_as_queries_only():
    embeddings = circle([0, 1, 3, 90, 91])
    scores = query_metrics(embeddings, np.array([0, -1, 0, -1, -1]), 1)
    np.testing.assert_array_equal(scores.recall_at_1, [0, np.nan, 0, np.nan, np.nan])
    assert scores.nearest.ravel().tolist() == [1, 0, 1, 4, 3]


@pytest.mark.parametrize(
    ("embeddings", "labels", "message"),
    [
        (draw(4, 3, 0), [0, 0, 1], "labels of shape"),
        (np.full((4, 3), np.nan, np.float32), [0, 0, 1, 1], "nan in row 0"),
        (draw(4, 3, 0), [0.0, 0.0, np.nan, 1.0], "labels hold nan"),
        (draw(4, 3, 0), [0, 1, 2, 3], "none of 4 labels occurs twice"),
    ],
)
def test_retrieval_metrics__raises_on_what_cannot_be_measured(embeddings, labels, message):
    with pytest.raises(ValueError, match=message):
        retrieval_metrics(embeddings, labels)


def world(n=60, classes=7, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    return (rng.normal(size=(n, 5)) + labels[:, None] * 0.3).astype(np.float32), labels


def test_score__queries_ask_the_gallery_alone():
    embeddings, labels = world()
    is_query, labels[0] = np.arange(60) % 3 == 0, 99  # which finds nothing
    met = score(embeddings, labels, np.where(is_query, "query", "gallery"), (4,))
    given = embeddings[is_query], embeddings[~is_query], labels[is_query], labels[~is_query]
    expected = collection_metrics(*given, nearest=4)
    for name in ("map_at_r", "r_precision", "recall_at_1"):
        assert met[name] == pytest.approx(np.nanmean(getattr(expected, name)))
    found = (labels[~is_query][expected.nearest] == labels[is_query][:, None]).any(1)
    assert met["recall_at_4"] == pytest.approx(found[~np.isnan(expected.map_at_r)].mean())


def test_score__without_queries_is_leave_one_out():
    embeddings, labels = world()
    met = score(embeddings, labels, np.array(["test"] * 60), (1, 2))
    expected = retrieval_metrics(embeddings, labels)
    assert met["map_at_r"] == pytest.approx(expected["map_at_r"]) and met["recall_at_2"] >= met["recall_at_1"]
    assert met["recall_at_1"] == pytest.approx(expected["recall_at_1"])


def test_score__raises_when_no_query_is_left():
    embeddings, _ = world(6)
    with pytest.raises(ValueError, match="none of 6"):
        score(embeddings, np.arange(6), np.array(["test"] * 6))
    with pytest.raises(ValueError, match="no gallery"):
        score(embeddings, np.zeros(6, np.int64), np.array(["query"] * 6))


def test_collection_metrics__equal_a_loop_over_queries():
    generator = np.random.default_rng(0)
    queries, gallery = (generator.normal(size=(n, 6)).astype(np.float32) for n in (9, 40))
    asked, labels = generator.integers(-1, 5, 9), generator.integers(-1, 4, 40)
    scores = metrics.collection_metrics(queries, gallery, asked, labels, 3)
    for query in range(9):
        cosines = gallery @ queries[query] / np.linalg.norm(gallery, axis=1)
        ranked = labels[np.argsort(-cosines)] == asked[query]
        relevant = int(ranked.sum()) if asked[query] >= 0 else 0
        assert scores.nearest[query].tolist() == np.argsort(-cosines)[:3].tolist()
        if relevant:
            assert scores.r_precision[query] == pytest.approx(ranked[:relevant].mean())
        else:
            assert np.isnan(scores.r_precision[query])


@pytest.mark.parametrize("ranks", [0, 2, 100])
def test_query_metrics__keeps_as_many_ranks_as_are_relevant(ranks):
    embeddings, labels = draw(40, 6, 3), np.array([*range(5)] * 7 + [-1] * 5)
    ranked, place = query_metrics(embeddings, labels, 3, ranks).ranked, 0
    units = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    for i, length in enumerate(ranked.lengths):
        cosines = units @ units[i]
        nearest = [j for j in np.argsort(-cosines, kind="stable") if j != i][: min(ranks, 6 if labels[i] >= 0 else 0)]
        assert length == len(nearest) and ranked.images[place : place + length].tolist() == nearest
        np.testing.assert_allclose(ranked.cosines[place : place + length], cosines[nearest], atol=1e-6)
        place += length
    assert place == len(ranked.images)
