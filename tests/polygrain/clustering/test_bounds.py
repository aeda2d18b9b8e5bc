import numpy as np
import pytest
import torch

from polygrain.clustering.bounds import HamerlyBounds
from polygrain.clustering.screen import Screen
from polygrain.compute.vectors import as_vectors
from tests.polygrain.compute.test_vectors import draw, squared


@pytest.mark.parametrize("few", [0, 40])
def test_reassign__follows_centroids_that_move_a_little_a_lot_and_not_at_all(few, monkeypatch):
    monkeypatch.setattr("polygrain.clustering.bounds.FEW", few)
    rng = np.random.default_rng(0)
    for seed in range(4):
        points, centroids = draw(300, 5, seed), draw(40, 5, seed + 50)
        bounds = HamerlyBounds(
            Screen(as_vectors(points)), as_vectors(centroids), torch.zeros(300, dtype=torch.int64), False
        )
        for size in (0, 1e-3, 0.3, 0, 3, 1e-3):
            centroids = centroids + (rng.random((40, 1)) < 0.3) * (size * rng.normal(size=(40, 5)))
            centroids = centroids.astype(np.float32)
            bounds.reassign(as_vectors(centroids))
            distances = squared(points, centroids)
            np.testing.assert_array_equal(bounds.labels, distances.argmin(1))
            others = np.sort(distances, 1)[:, 1] ** 0.5
            assert (bounds.lower.numpy() <= others * (1 + 1e-6)).all()
            assert (bounds.upper.numpy() >= distances.min(1) ** 0.5 * (1 - 1e-7)).all()


def test_reassign__a_centroid_that_lands_on_a_point_takes_it_where_its_number_is_lower():
    points = np.array([[0, 0], [4, 0], [9, 9]], np.float32)
    centroids = np.array([[5, 5], [0, 0], [4, 0]], np.float32)
    bounds = HamerlyBounds(Screen(as_vectors(points)), as_vectors(centroids), torch.tensor([1, 2, 0]), True)
    centroids[0] = [4, 0]
    bounds.reassign(as_vectors(centroids))
    assert bounds.labels.tolist() == [1, 0, 0]


def test_forget__makes_the_next_comparison_a_full_one():
    points, centroids = draw(50, 3, 0), draw(6, 3, 1)
    nearest = squared(points, centroids).argmin(1)
    bounds = HamerlyBounds(Screen(as_vectors(points)), as_vectors(centroids), torch.from_numpy(nearest), True)
    bounds.labels[:20] = 0
    bounds.forget(torch.arange(20))
    bounds.reassign(as_vectors(centroids))
    np.testing.assert_array_equal(bounds.labels, nearest)


def test_settle__leaves_few_rows_to_be_compared_exactly(monkeypatch):
    points, centroids = draw(400, 5, 0), 4 * draw(20, 5, 1)
    bounds = HamerlyBounds(
        Screen(as_vectors(points)), as_vectors(centroids), torch.zeros(400, dtype=torch.int64), False
    )
    bounds.reassign(as_vectors(centroids))
    compared = []
    monkeypatch.setattr(bounds, "compare", lambda rows, *others: compared.append(len(rows)))
    bounds.reassign(as_vectors(centroids + 0.01 * draw(20, 5, 2)))
    assert sum(compared) < 0.1 * 400
