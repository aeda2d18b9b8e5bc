import pytest
import torch
from torch.nn.functional import normalize, pad

from polygrain.encoder.last_layer import layer_of


@pytest.mark.parametrize(("dim", "zeros"), [(24, 0), (8, 0), (6, 9), (12, 12)])
def test_in_front__has_the_directions_that_the_layer_sees(dim, zeros):
    """Rows of zeros in a layer change no neighbour."""
    generator = torch.Generator().manual_seed(0)
    rows, weight = normalize(torch.randn(5, 24, generator=generator), dim=1), torch.randn(dim, 24, generator=generator)
    mean = rows.mean(0) / 2
    within = (rows - mean).double() @ torch.linalg.pinv(weight.double()) @ weight.double()
    expected = normalize(within, dim=1)
    weight = pad(weight, (0, 0, 0, zeros))
    layer = layer_of(weight, -weight @ mean, torch.device("cpu"))
    found = torch.from_numpy(layer.in_front(layer(rows).numpy())).double()
    assert found.shape == (5, dim + zeros)
    torch.testing.assert_close(found @ found.T, expected @ expected.T, atol=1e-4, rtol=0)
