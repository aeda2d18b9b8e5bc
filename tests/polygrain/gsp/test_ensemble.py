import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from polygrain.gsp.ensemble import average, class_means, combinations, side_by_side, summary_of, transfer


def world(seed, classes):
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), 6)
    attributes = rng.dirichlet(np.ones(4), classes).astype(np.float32)[labels]
    embeddings = attributes @ rng.normal(size=(4, 8)).astype(np.float32)
    return attributes, embeddings.astype(np.float32), labels


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_transfer__is_a_ridge_regression_by_hand():
    attributes, embeddings, labels = world(3, classes=4)
    result = transfer(attributes, embeddings, labels, splits=1, ridge=0.1, seed=5)
    order = torch.randperm(4, generator=torch.Generator().manual_seed(5)).numpy()
    known, others = order[:2], order[2:]
    z, y = class_means(attributes, labels).astype(float), class_means(embeddings, labels).astype(float)
    a = np.linalg.inv(z[known].T @ z[known] + 0.1 * np.eye(4)) @ z[known].T @ y[known]
    cosines = [p @ t / np.linalg.norm(p) / np.linalg.norm(t) for p, t in zip(z[others] @ a, y[others], strict=True)]
    distances = [[np.linalg.norm(p - t) for t in y[others]] for p in z[others] @ a]
    assert result["cosine"] == pytest.approx(np.mean(cosines), abs=1e-6)
    assert result["distance"] == pytest.approx(np.mean(np.diag(distances)), abs=1e-6)
    precisions = [average_precision_score(np.arange(2) == i, -row) for i, row in enumerate(np.array(distances))]
    assert result["map_by_distance"] == pytest.approx(np.mean(precisions))
    assert result["spread_by_distance"] == {result["map_by_distance"]: 1}


def test_combinations__of_the_papers_protocol_are_81():
    choices = combinations(4, 3)
    assert len(choices) == len(set(choices)) == 81
    assert all(len(choice) == 4 and set(choice) <= {0, 1, 2} for choice in choices)


def test_side_by_side__cosines_are_the_mean_of_the_folds():
    rng = np.random.default_rng(0)
    parts = [unit(rng.normal(size=(5, 4)).astype(np.float32)) for _ in range(3)]
    joined = side_by_side(parts)
    assert joined.shape == (5, 12) and np.allclose(joined @ joined.T, sum(x @ x.T for x in parts) / 3, atol=1e-6)


def test_average_and_summary_of():
    assert average([{"a": 1.0, "b": 2.0}, {"a": 3.0, "b": 2.0}]) == {"a": 2.0, "b": 2.0}
    assert summary_of([1.0, 3.0]) == {"mean": 2.0, "std": pytest.approx(2**0.5), "min": 1.0, "max": 3.0}
    assert summary_of([4.0])["std"] == 0
