"""What teachers give, smoothed or not, and the linear layer that learns it."""

import numpy as np
import pytest

from polygrain.compute.vectors import unit_rows
from polygrain.retrieval import whitening
from polygrain.retrieval.smoothing import Smoothing, smooth_as
from polygrain.selection.teaching import PENALTY, Lesson, learn, lessons, read_targets
from polygrain.store import arrays

RNG = np.random.default_rng(0)


def rows(count, dim):
    return unit_rows(RNG.normal(size=(count, dim)).astype(np.float32))


def test_learn__is_ridge_regression_with_a_free_bias():
    inputs, targets = rows(50, 6) * np.float32([3, 1, 1, 1, 1, 0.1]), rows(50, 4)
    weight, bias = learn(inputs, targets)
    x, centred = inputs.astype(float), inputs - inputs.mean(0, dtype=float)
    penalty = PENALTY * 50 * x.var(0).mean() * np.eye(6)
    expected = np.linalg.solve(centred.T @ centred + penalty, centred.T @ (targets - targets.mean(0)))
    np.testing.assert_allclose(weight.T, expected, atol=1e-4)
    np.testing.assert_allclose(bias, targets.mean(0) - x.mean(0) @ expected, atol=1e-4)


def test_learn__inputs_that_are_all_alike_give_the_mean_target():
    targets = rows(8, 3)
    weight, bias = learn(np.ones((8, 5), np.float32), targets)
    np.testing.assert_allclose(np.ones(5) @ weight.T + bias, targets.mean(0), atol=1e-5)


def test_lessons__mix_targets_with_what_each_task_smooths_them_to():
    targets, tasks = {"own": rows(40, 8)}, np.array(["a"] * 25 + ["b"] * 15)
    smoothings = {"a": Smoothing(0.9, 5)}  # b stays
    taught = dict(lessons(targets, tasks, smoothings, [0.0, 0.5, 1.0]))
    assert [str(lesson) for lesson in taught] == [
        "taught by own",
        "taught by own, smoothed by 0.5",
        "taught by own, smoothed",
    ]
    smoothed = np.concatenate([smooth_as(targets["own"][:25], smoothings["a"]), targets["own"][25:]])
    np.testing.assert_allclose(taught[Lesson("own", 0)], targets["own"], atol=1e-6)
    np.testing.assert_allclose(taught[Lesson("own", 1)], smoothed, atol=1e-6)
    np.testing.assert_allclose(taught[Lesson("own", 0.5)], unit_rows(targets["own"] + smoothed), atol=1e-6)


@pytest.mark.parametrize("names", [[], ["own"], ["own", "large"]])
def test_read_targets__the_first_alone_and_all_side_by_side(tmp_path, names):
    given = {"own": rows(30, 5), "large": rows(30, 9)}
    for name in names:
        (tmp_path / name).mkdir()
        arrays.write(tmp_path / name / "embeddings.zarr", given[name])
    found = read_targets(tmp_path, names)
    assert list(found) == {0: [], 1: ["own"], 2: ["own", "all teachers"]}[len(names)]
    if names:
        np.testing.assert_array_equal(found["own"], given["own"])
    if len(names) == 2:
        joined = np.concatenate([given["own"], given["large"]], 1) / np.float32(2**0.5)
        expected = whitening.apply(whitening.fit(joined, 9, "half"), joined)
        np.testing.assert_allclose(found["all teachers"], expected, atol=1e-5)
