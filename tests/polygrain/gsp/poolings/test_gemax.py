import pytest
import torch

from polygrain.gsp.poolings.gemax import GeneralisedMax

MAPS = torch.randn(2, 5, 3, 4, generator=torch.Generator().manual_seed(0))


def test_generalised_max__equals_ridge_regression_of_ones():
    """The primal form: (F F' + ridge I)^-1 F 1."""
    result = GeneralisedMax(5, ridge=0.7)(MAPS)
    for image in range(2):
        f = MAPS[image].flatten(1)
        expected = torch.linalg.inv(f @ f.T + 0.7 * torch.eye(5)) @ f.sum(1)
        assert torch.allclose(result.vector[image], expected, atol=1e-5)
        assert torch.allclose(f @ result.weights[image].flatten(), expected, atol=1e-5)


def test_generalised_max__does_not_count_repetitions():
    """Nine places of one kind and one of another weigh nearly the same; a sum would weigh them 9 : 1."""
    maps = torch.eye(2)[[0] * 9 + [1]].T.reshape(1, 2, 2, 5)
    often, once = GeneralisedMax(2, ridge=1e-4)(maps).vector[0]
    assert often.item() == pytest.approx(1, abs=1e-3) and once.item() == pytest.approx(1, abs=1e-3)
