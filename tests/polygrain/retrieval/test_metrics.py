import numpy as np
import pytest
import torch
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

from polygrain.retrieval import index, large_classes
from polygrain.retrieval.metrics import query_gallery, query_metrics, retrieval_metrics, score
from tests.helpers.torchrun import torchrun


def draw(n, d, seed):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def circle(degrees):
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)


def plain(embeddings, labels):
    """One query at a time, the formulas as they are written; whole-number embeddings of equal length tie exactly."""
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


def hold_at_most(cells, monkeypatch):
    monkeypatch.setattr(index, "CELLS", cells)
    monkeypatch.setattr(large_classes, "HELD", cells)


def compare(embeddings, labels, nearest):
    ours, expected = query_metrics(embeddings, labels, nearest), plain(embeddings, labels)
    np.testing.assert_allclose(ours.r_precision, expected[0], rtol=1e-12)
    np.testing.assert_allclose(ours.map_at_r, expected[1], rtol=1e-12)
    np.testing.assert_allclose(ours.recall_at_1, expected[2], rtol=1e-12)
    assert (ours.nearest == expected[3][:, :nearest]).all()


@pytest.mark.parametrize("classes", [1, 2, 7, 60])
@pytest.mark.parametrize("cells", [1, 1000, 2**24])
def test_query_metrics__equals_the_plain_loop(classes, cells, monkeypatch):
    hold_at_most(cells, monkeypatch)
    embeddings = draw(80, 6, classes)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    compare(embeddings, np.random.default_rng(0).integers(0, classes, 80), 5)


@pytest.mark.parametrize("nearest", [0, 5])
@pytest.mark.parametrize("repeated", [0, 20])
def test_query_metrics__of_large_classes_and_small_equals_the_plain_loop(nearest, repeated):
    # Coordinates are multiples of 1/32, and all rows of length 1/2, so that equal cosines are equal in float32.
    generator = np.random.default_rng(0)
    signs = generator.choice([-1, 1], size=(330, 64)).astype(np.float32) / 16
    signs[:repeated] = signs[-repeated:] if repeated else signs[:0]
    labels = np.repeat([4, 2, 0, -1, 7], [130, 90, 20, 70, 20])
    order = generator.permutation(330)
    compare(signs[order], labels[order], nearest)


@pytest.mark.parametrize("nearest", [0, 3, 63])
@pytest.mark.parametrize("classes", [2, 15])
def test_query_metrics__breaks_ties_by_index(nearest, classes, monkeypatch):
    hold_at_most(500, monkeypatch)
    # Corners of a cube: unit length up to a power of two, so that equal cosines are equal in float32.
    generator = np.random.default_rng(1)
    embeddings = generator.choice([-1, 1], size=(64, 4)).astype(np.float32)
    compare(embeddings, generator.integers(0, classes, 64), nearest)


@pytest.mark.parametrize("d", [3, 65, 384])
def test_query_metrics__ties_equal_images_by_index(d, monkeypatch):
    hold_at_most(1500, monkeypatch)
    kinds = draw(3, d, 0)
    which = np.random.default_rng(0).integers(0, 3, 101)
    nearest = query_metrics(kinds[which], np.zeros(101, int), 100).nearest
    for q in range(101):
        own = [j for j in range(101) if which[j] == which[q] and j != q]
        assert nearest[q, : len(own)].tolist() == own
        for kind in {0, 1, 2} - {which[q]}:
            places = np.flatnonzero(which[nearest[q]] == kind)
            assert (np.diff(nearest[q][places]) > 0).all() and np.ptp(places) == len(places) - 1


def test_query_metrics__gives_the_numbers_worked_by_hand():
    # On a circle: a at 0, 10, 30 degrees, b at 15, 90, c alone at 200.
    embeddings = circle([0, 10, 30, 15, 90, 200]) * np.array([[1], [5], [0.1], [2], [3], [7]], np.float32)
    scores = query_metrics(embeddings, ["a", "a", "a", "b", "b", "c"], 2)
    # Query 0: 10 (a), 15 (b), 30 (a). Query 1: 15 (b), 0 (a). Query 2: 15 (b), 10 (a). Query 3: 10. Query 4: 30.
    np.testing.assert_allclose(scores.r_precision, [1 / 2, 1 / 2, 1 / 2, 0, 0, np.nan])
    np.testing.assert_allclose(scores.map_at_r, [1 / 2, 1 / 4, 1 / 4, 0, 0, np.nan])
    np.testing.assert_allclose(scores.recall_at_1, [1, 0, 0, 0, 0, np.nan])
    assert scores.nearest[:4].tolist() == [[1, 3], [3, 0], [3, 1], [1, 0]]
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


def test_retrieval_metrics__is_one_for_separate_classes_whatever_their_length():
    embeddings = np.repeat(np.eye(4, dtype=np.float32), 5, 0) * np.arange(1, 21, dtype=np.float32)[:, None]
    means = retrieval_metrics(embeddings, np.repeat(np.arange(4), 5))
    assert (means["r_precision"], means["map_at_r"], means["recall_at_1"]) == (1, 1, 1)


def test_query_metrics__leaves_unlabelled_images_out_as_queries_only():
    embeddings = circle([0, 1, 3, 90, 91])
    scores = query_metrics(embeddings, np.array([0, -1, 0, -1, -1]), 1)
    np.testing.assert_array_equal(scores.recall_at_1, [0, np.nan, 0, np.nan, np.nan])
    assert scores.nearest.ravel().tolist() == [1, 0, 1, 4, 3]


def test_query_metrics__of_a_single_image_is_nan():
    scores = query_metrics(draw(1, 3, 0), [0], 0)
    assert np.isnan(scores.r_precision).all() and scores.nearest.shape == (1, 0)


@pytest.mark.parametrize(
    ("embeddings", "labels", "message"),
    [
        (draw(4, 3, 0), [0, 0, 1], r"labels of shape \(3,\) for 4 embeddings"),
        (draw(4, 3, 0), np.zeros((4, 1), int), r"labels of shape \(4, 1\) for 4 embeddings"),
        (np.zeros((0, 3), np.float32), [], r"embeddings of shape \(0, 3\)"),
        (np.full((4, 3), np.nan, np.float32), [0, 0, 1, 1], "embeddings hold nan in row 0"),
        (np.full((4, 3), np.inf, np.float32), [0, 0, 1, 1], "embeddings hold inf in row 0"),
        (draw(4, 3, 0), [0.0, 0.0, np.nan, 1.0], "labels hold nan"),
        (draw(4, 3, 0), [0, 1, 2, 3], "none of 4 labels occurs twice"),
        (draw(4, 3, 0), [-1, -1, -1, -1], "none of 4 labels occurs twice"),
    ],
)
def test_retrieval_metrics__raises_on_what_cannot_be_measured(embeddings, labels, message):
    with pytest.raises(ValueError, match=message):
        retrieval_metrics(embeddings, labels)


def test_query_metrics__raises_on_more_nearest_than_there_are():
    with pytest.raises(ValueError, match="4 nearest images of 3 others; allowed is 0 to 3"):
        query_metrics(draw(4, 3, 0), [0, 0, 1, 1], 4)


def world(n=60, classes=7, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    return (rng.normal(size=(n, 5)) + labels[:, None] * 0.3).astype(np.float32), labels


def slow(queries, query_labels, gallery, labels, k):
    """MAP@R, R-Precision and Recall@K, one query at a time."""
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (queries, gallery)]
    found = []
    for vector, label in zip(unit[0], query_labels, strict=True):
        hits = labels[np.argsort(-(unit[1] @ vector), kind="stable")] == label
        r = int(hits.sum())
        if r:
            precisions = [hits[: i + 1].mean() for i in range(r) if hits[i]]
            found.append((sum(precisions) / r, hits[:r].mean(), hits[:k].any()))
    return np.mean(found, axis=0)


def test_score__queries_ask_the_gallery_alone():
    embeddings, labels = world()
    splits = np.array(["query", "gallery", "gallery"] * 20)
    is_query = splits == "query"
    expected = slow(embeddings[is_query], labels[is_query], embeddings[~is_query], labels[~is_query], 4)
    met = score(embeddings, labels, splits, (4,))
    assert [met["map_at_r"], met["r_precision"], met["recall_at_4"]] == pytest.approx(expected.tolist(), abs=1e-6)


def test_score__without_queries_is_leave_one_out():
    embeddings, labels = world()
    met = score(embeddings, labels, np.array(["test"] * 60), (1, 2))
    expected = retrieval_metrics(embeddings, labels)
    assert met["map_at_r"] == pytest.approx(expected["map_at_r"]) and met["recall_at_2"] >= met["recall_at_1"]
    assert met["recall_at_1"] == pytest.approx(expected["recall_at_1"])


def test_score__leaves_out_queries_that_have_nothing_to_find():
    embeddings, labels = world(12, 3)
    labels[0], splits = 99, np.array(["query"] * 4 + ["gallery"] * 8)
    values, _ = query_gallery(embeddings[:4], labels[:4], embeddings[4:], labels[4:], 1)
    assert np.isnan(values["map_at_r"][0]) and np.isfinite(score(embeddings, labels, splits)["map_at_r"])


def test_score__raises_when_no_query_is_left():
    embeddings, _ = world(6)
    with pytest.raises(ValueError, match="none of 6 queries has another image of its class"):
        score(embeddings, np.arange(6), np.array(["test"] * 6))
    with pytest.raises(ValueError, match="there are queries and no gallery"):
        score(embeddings, np.zeros(6, np.int64), np.array(["query"] * 6))


SHARED = """
import sys
from dataclasses import asdict
from pathlib import Path
import numpy as np
from polygrain.compute import processes
from polygrain.compute.distributed import Distributed
from polygrain.retrieval import index
from polygrain.retrieval.metrics import query_metrics, shared_query_metrics

index.CELLS = 5000  # blocks of 12 queries
rng = np.random.default_rng(0)
labels = np.concatenate([rng.integers(0, 30, 120), np.repeat([30, 31, 32], 90), np.full(10, -1)])
rng.shuffle(labels)
x = (rng.normal(size=(400, 12)) + 0.2 * labels[:, None] % 3).astype(np.float32)
for name, rows, nearest in (("many", np.arange(400), 5), ("none", np.arange(400), 0), ("one", np.arange(1), 0)):
    part = x[rows][processes.share(len(rows))]
    found = asdict(shared_query_metrics(Distributed(part), labels[rows], nearest))
    alone = asdict(query_metrics(x[rows], labels[rows], nearest))
    assert all(found[key].tobytes() == alone[key].tobytes() for key in alone), name
if processes.rank():
    query_metrics(x, labels)  # waits for nobody
(Path(sys.argv[1]) / str(processes.rank())).touch()
"""


@pytest.mark.slow
def test_shared_query_metrics__three_processes_have_the_numbers_of_one(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(SHARED)
    torchrun(3, program, tmp_path)
    assert all((tmp_path / str(rank)).exists() for rank in range(3))
