import numpy as np
import pytest
import torch

from polygrain.clustering.screen import Screen
from polygrain.compute.vectors import as_vectors, squared_distances
from tests.polygrain.compute.test_vectors import draw, squared

KINDS = [torch.bfloat16, torch.float32]


def world(seed, scale=1.0, levels=None):
    """Points, centroids, and limits that a few centroids are within: some of them exactly at the limit."""
    points, centroids = (
        draw(120, 7, seed, levels) * np.float32(scale),
        draw(40, 7, seed + 1, levels) * np.float32(scale),
    )
    distances = squared(points, centroids)
    limits = np.sort(distances, 1)[np.arange(120), np.arange(120) % 4]
    return points, centroids, distances, limits


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("scale", "levels"), [(1, None), (1, 2), (1e12, None), (1e-12, None), (1e-30, None)])
def test_within__finds_exactly_what_the_plain_search_finds(kind, scale, levels, monkeypatch):
    monkeypatch.setattr("polygrain.clustering.screen.TILE", 700)
    points, centroids, _, _ = world(3, scale, levels)
    screen, rows = Screen(as_vectors(points), kind), torch.arange(5, 120)
    # All pairs, summed as the search sums them: whether a distance equals its limit is at stake.
    pairs = torch.cartesian_prod(torch.arange(120), torch.arange(40)).T
    distances = squared_distances(as_vectors(points), pairs[0], as_vectors(centroids), pairs[1]).view(120, 40).numpy()
    limits = np.sort(distances, 1)[np.arange(120), np.arange(120) % 4][5:]
    found = screen.within(rows, as_vectors(centroids), torch.from_numpy(limits))
    i, j = np.nonzero(distances[5:] <= limits[:, None])
    np.testing.assert_array_equal(found.rows, i)
    np.testing.assert_array_equal(found.positions, j)
    np.testing.assert_allclose(found.distances, distances[5:][i, j], rtol=1e-12)
    others = np.where(distances[5:] <= limits[:, None], np.inf, distances[5:]).min(1)
    assert (found.beyond.numpy() <= others).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("levels", [None, 1])
def test_within__closest_keeps_all_that_tie_for_the_nearest(kind, levels):
    points, centroids, _, _ = world(5, 1, levels)
    distances = ((points[:, None] - centroids[None]).astype(np.float64) ** 2).sum(2)
    skipped = distances.argmin(1)
    skipped[::3] = -1
    allowed = np.where(np.arange(40) == skipped[:, None], np.inf, distances)
    limits = torch.full((120,), float(distances.max()), dtype=torch.float64)
    found = Screen(as_vectors(points), kind).within(
        torch.arange(120), as_vectors(centroids), limits, skipped=torch.from_numpy(skipped), closest=True
    )
    kept = np.zeros((120, 40), bool)
    kept[found.rows, found.positions] = True
    assert (kept >= (allowed == allowed.min(1, keepdims=True))).all()
    assert (found.beyond.numpy() <= np.where(kept, np.inf, allowed).min(1)).all()
    assert kept.sum() < 0.2 * kept.size


def test_within__bounds_are_close_to_what_they_bound():
    points, centroids, distances, limits = world(7)
    for kind in KINDS:
        screen = Screen(as_vectors(points), kind)
        found = screen.within(torch.arange(120), as_vectors(centroids), torch.from_numpy(limits * (1 - 1e-6)))
        others = np.where(distances <= limits[:, None] * (1 - 1e-6), np.inf, distances).min(1)
        assert np.median(1 - found.beyond.numpy() / others) < (0.05 if kind == torch.bfloat16 else 1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_runners_up__are_about_the_second_nearest(kind):
    points, centroids, distances, _ = world(9)
    labels = distances.argmin(1)
    far = torch.from_numpy(distances.min(1))
    second, loss = Screen(as_vectors(points), kind).runners_up(torch.from_numpy(labels), as_vectors(centroids), far)
    ranked = np.sort(distances, 1)
    assert (second.numpy() != labels).all()
    np.testing.assert_allclose(loss, ranked[:, 1] - ranked[:, 0], atol=0.3)
    np.testing.assert_allclose(distances[np.arange(120), second], ranked[:, 1], atol=0.3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [1, 1e12, 1e-12, 1e-30])
@pytest.mark.parametrize("rows", [torch.arange(120), torch.arange(1, 120, 2)])
def test_bracket__bounds_are_on_their_sides_and_close(kind, scale, rows, monkeypatch):
    monkeypatch.setattr("polygrain.clustering.screen.TILE", 700)
    points, centroids, distances, _ = world(11, scale)
    own = np.arange(120) % 41 - 1  # -1: the limit stands for it
    limits = np.where(own < 0, distances.min(1), distances[np.arange(120), own] * 1.1)
    near, far = Screen(as_vectors(points), kind).bracket(
        rows, as_vectors(centroids), torch.from_numpy(limits)[rows], torch.from_numpy(own)[rows]
    )
    exact = np.where(own < 0, limits, distances[np.arange(120), own])[rows]
    others = np.where(np.arange(40) == own[:, None], np.inf, distances).min(1)[rows]
    assert (near.numpy() >= exact).all() and (far.numpy() <= others).all()
    close = 0.1 if kind == torch.bfloat16 else 1e-3
    if scale == 1e-30:
        return  # squares are too small to be normal numbers, and bounds not close
    assert np.median(near.numpy() / exact) < 1 + close and np.median(far.numpy() / others) > 1 - close
