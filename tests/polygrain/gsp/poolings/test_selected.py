import torch

from polygrain.gsp.poolings.selected import ScaledMaximum, SelectedMaximum, SelectedMean, SelectedSum

VALUES = {"channels": 6, "prototypes": 4, "mu": 0.3, "epsilon": 5.0}
MAPS = torch.randn(2, 6, 3, 5, generator=torch.Generator().manual_seed(0))
SPACE = torch.randn(2, 3, 3, 5, generator=torch.Generator().manual_seed(1))


def test_selected_sum__equals_a_loop_over_places():
    pool = SelectedSum(**VALUES)
    vector, attributes, weights = pool(MAPS)
    expected = torch.zeros(2, 6)
    for y in range(3):
        for x in range(5):
            expected += weights[:, None, y, x] * MAPS[:, :, y, x]
    assert torch.allclose(vector, expected, atol=1e-6)
    assert weights.shape == (2, 3, 5) and attributes.shape == (2, 4)


def test_selected_sum__measures_costs_in_the_space_given():
    pool = SelectedSum(**VALUES, space=3)
    weights, attributes = pool.selection(SPACE)
    pooled = pool(MAPS, SPACE)
    assert torch.equal(pooled.weights, weights) and torch.equal(pooled.attributes, attributes)
    assert torch.allclose(pooled.vector, (MAPS * weights[:, None]).sum((2, 3)), atol=1e-6)


def test_selected_maximum__adds_the_maximum():
    pool = SelectedMaximum(**VALUES)
    vector, _, weights = pool(MAPS)
    assert torch.allclose(vector, (MAPS * weights[:, None]).sum((2, 3)) + MAPS.amax((2, 3)), atol=1e-6)


def test_scaled_maximum__equals_a_loop_over_places():
    vector, attributes, weights = ScaledMaximum(**VALUES)(MAPS)
    expected = torch.full((2, 6), -torch.inf)
    for y in range(3):
        for x in range(5):
            expected = torch.maximum(expected, 15 * weights[:, None, y, x] * MAPS[:, :, y, x])
    assert torch.allclose(vector, expected, atol=1e-6) and attributes.shape == (2, 4)
    plain = ScaledMaximum(**(VALUES | {"mu": 1.0}))(MAPS).vector
    assert torch.allclose(plain, MAPS.amax((2, 3)), atol=1e-6)


def test_selected_mean__scales_places_before_the_mean():
    pool = SelectedMean(**VALUES, p=3.0)
    vector, _, weights = pool(MAPS)
    scaled = (MAPS * weights[:, None] * 15).clamp_min(1e-6)
    assert torch.allclose(vector, (scaled**3).mean((2, 3)) ** (1 / 3), rtol=1e-5)
