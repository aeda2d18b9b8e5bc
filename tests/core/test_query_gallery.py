import numpy as np
import pytest

from stages.core.metrics import retrieval_metrics
from stages.core.query_gallery import ask, score


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
    values, _ = ask(embeddings[:4], labels[:4], embeddings[4:], labels[4:], 1)
    assert np.isnan(values["map_at_r"][0]) and np.isfinite(score(embeddings, labels, splits)["map_at_r"])


def test_score__raises_when_no_query_is_left():
    embeddings, _ = world(6)
    with pytest.raises(ValueError, match="none of 6 queries has another image of its class"):
        score(embeddings, np.arange(6), np.array(["test"] * 6))
    with pytest.raises(ValueError, match="there are queries and no gallery"):
        score(embeddings, np.zeros(6, np.int64), np.array(["query"] * 6))
