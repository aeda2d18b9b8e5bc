import numpy as np
import torch

from polygrain.grappa.random_weights import weigh_at_random
from tests.helpers.small import adapted, write_encoder


def test_weigh_at_random__each_image_and_layer_has_weights_of_its_own(tmp_path):
    model = adapted(write_encoder(tmp_path / "encoder"), ["k4", "k8", "k16"], 0)
    images = torch.rand(500, 3, 32, 32)
    assert (model.attention(images) == 1 / 3).all()
    before = model(images)
    weigh_at_random(model, torch.Generator().manual_seed(0))
    weights = model.attention(images)
    torch.testing.assert_close(weights.sum(2), torch.ones(500, 2))
    # The logarithm of a ratio of two weights is a difference of two normal numbers.
    ratios = (weights[:, :, 0] / weights[:, :, 1]).log()
    assert abs(ratios.mean()) < 0.15 and abs(ratios.std() - 2**0.5) < 0.1
    assert abs(np.corrcoef(ratios[:, 0], ratios[:, 1])[0, 1]) < 0.15
    assert not torch.allclose(model(images), before)
    weigh_at_random(model, torch.Generator().manual_seed(0))
    assert torch.equal(model.attention(images), weights)
