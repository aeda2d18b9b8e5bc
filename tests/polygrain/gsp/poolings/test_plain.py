import pytest
import torch

from polygrain.gsp.poolings.plain import Average, AverageMaximum, GeneralisedMean, Maximum

MAPS = torch.randn(3, 5, 4, 6, generator=torch.Generator().manual_seed(0))


def test_plain__equal_loops_over_channels():
    average, largest = Average(5)(MAPS).vector, Maximum(5)(MAPS).vector
    for image in range(3):
        for channel in range(5):
            values = MAPS[image, channel].flatten().tolist()
            assert average[image, channel].item() == pytest.approx(sum(values) / 24, abs=1e-6)
            assert largest[image, channel].item() == max(values)
    assert torch.equal(AverageMaximum(5)(MAPS).vector, average + largest)
    assert Average(5)(MAPS).attributes is None and Average(5)(MAPS).weights is None


def test_generalised_mean__equals_a_loop():
    result = GeneralisedMean(5, p=3.0)(MAPS).vector
    for image in range(3):
        for channel in range(5):
            values = [max(value, 1e-6) for value in MAPS[image, channel].flatten().tolist()]
            expected = (sum(value**3 for value in values) / 24) ** (1 / 3)
            assert result[image, channel].item() == pytest.approx(expected, rel=1e-5)


def test_generalised_mean__reaches_from_average_to_maximum():
    positive = MAPS.abs() + 0.1
    assert torch.allclose(GeneralisedMean(5, p=1.0)(positive).vector, Average(5)(positive).vector, atol=1e-6)
    assert torch.allclose(GeneralisedMean(5, p=500.0)(positive).vector, Maximum(5)(positive).vector, rtol=0.01)
