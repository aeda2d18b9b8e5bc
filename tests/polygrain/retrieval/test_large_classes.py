import numpy as np
import pytest
import torch

from polygrain.retrieval import large_classes as module
from polygrain.retrieval.index import Index
from polygrain.retrieval.large_classes import large_classes, measure_large

NOTHING = []


def draw(n, d=12, classes=3, seed=0):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, n)
    points = generator.normal(size=(classes, d))[labels] + 2 * generator.normal(size=(n, d))
    return torch.nn.functional.normalize(torch.from_numpy(points).float(), dim=1), labels


def plain(x, labels, asked):
    """One query at a time, the formulas as they are written."""
    result = []
    for q in asked:
        scores = x.double() @ x[q].double()
        others = [j for j in torch.argsort(-scores, stable=True).tolist() if j != q]
        hits = [labels[j] == labels[q] for j in others]
        r = sum(hits)
        average = sum(sum(hits[:i]) / i for i in range(1, r + 1) if hits[i - 1]) / r
        result.append((sum(hits[:r]) / r, average, float(hits[0])))
    return np.array(result).T


@pytest.mark.parametrize("side", [16, 512])
@pytest.mark.parametrize("asked", [[0], [2, 0], [0, 1, 2]])
def test_measure_large__equals_the_plain_loop(monkeypatch, side, asked):
    monkeypatch.setattr(module, "SIDE", side)
    x, labels = draw(400)
    classes = [np.flatnonzero(labels == number) for number in asked]
    values, certain = measure_large(x, classes)
    assert certain.mean() > 0.9
    found = plain(x, labels, np.concatenate(classes))
    np.testing.assert_allclose(values[:, certain], found[:, certain], rtol=1e-12)


@pytest.mark.parametrize(("place", "most"), [(1, 200), (2, 200), (2, 9), (5, 200), (6, 200)])
def test_measure_large__is_right_where_it_is_certain(monkeypatch, place, most):
    # Of five sampled images the first is far too high a bound, and the last hardly low enough.
    monkeypatch.setattr(module, "SAMPLED", 40)
    monkeypatch.setattr(module, "threshold_place", lambda n, size: module.Place(place, most))
    x, labels = draw(200, classes=2)
    classes = [np.flatnonzero(labels == number) for number in (0, 1)]
    values, certain = measure_large(x, classes)
    assert certain.all() == (place == 6) and certain.any() == (place > 1 and most > 9)
    found = plain(x, labels, np.concatenate(classes))
    np.testing.assert_allclose(values[:, certain], found[:, certain], rtol=1e-12)


def test_measure_large__doubts_ties_with_another_class():
    # Corners of a cube: unit length up to a power of two, so that equal cosines are equal in float32.
    generator = np.random.default_rng(1)
    x = torch.from_numpy(generator.choice([-0.5, 0.5], size=(200, 4)).astype(np.float32))
    labels = generator.integers(0, 2, 200)
    classes = [np.flatnonzero(labels == number) for number in (0, 1)]
    assert not measure_large(x, classes)[1].any()


def choose(x, labels):
    _, classes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    relevant = np.where(labels == -1, 0, sizes[classes] - 1)
    return large_classes(Index(x), classes, relevant)


def test_large_classes__are_the_large_ones(monkeypatch):
    x = torch.randn(300, 5, generator=torch.Generator().manual_seed(0))
    labels = np.repeat([0, 1, 2, -1], [100, 64, 63, 73])
    assert [rows.tolist() for rows in choose(x, labels)] == [list(range(100)), list(range(100, 164))]
    assert choose(x, np.arange(300) // 2) == NOTHING
    monkeypatch.setattr(module, "HELD", 100 * 200)
    assert choose(x, labels) == NOTHING


def test_large_classes__are_a_share_of_all(monkeypatch):
    monkeypatch.setattr(module, "SHALLOW", 0.3)
    x = torch.randn(300, 5, generator=torch.Generator().manual_seed(0))
    assert len(choose(x, np.repeat([0, 1, 2], [90, 91, 119]))) == 2


def test_large_classes__share_no_image_with_another():
    x = torch.randn(300, 5, generator=torch.Generator().manual_seed(0))
    labels = np.repeat([0, 1, 2], 100)
    x[5], x[250] = x[7], x[3]  # a repeat within class 0, and one of it in class 2
    assert [rows[0] for rows in choose(x, labels)] == [100]
