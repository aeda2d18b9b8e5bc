import pytest
import torch

from polygrain.gsp.poolings.weldon import WELDON

MAPS = torch.randn(2, 4, 3, 5, generator=torch.Generator().manual_seed(0))


def test_weldon__equals_sorted_sums():
    result = WELDON(4, highest=3, lowest=2)(MAPS).vector
    for image in range(2):
        for channel in range(4):
            values = sorted(MAPS[image, channel].flatten().tolist())
            assert result[image, channel].item() == pytest.approx(sum(values[-3:]) + sum(values[:2]), abs=1e-5)


def test_weldon__takes_maps_smaller_than_its_counts():
    maps = MAPS[:, :, :1, :2]
    assert torch.allclose(WELDON(4, highest=3, lowest=3)(maps).vector, 2 * maps.sum((2, 3)))
