import numpy as np
import pytest
import torch

from polygrain.grappa.random_weights import skip, weigh_at_random
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


@pytest.mark.parametrize("mirrored", [False, True])
def test_skip__a_batch_gets_what_it_gets_behind_others(mirrored, tmp_path):
    model = adapted(write_encoder(tmp_path / "encoder"), ["k4", "k8", "k16"], 0).seen(32, mirrored)
    images = torch.rand(23, 3, 32, 32)
    weigh_at_random(model, torch.Generator().manual_seed(0))
    whole = [model(images[start : start + 10]) for start in (0, 10, 20)]
    weigh_at_random(model, torch.Generator().manual_seed(0))
    skip(model, 2, 10)
    assert torch.equal(model(images[20:]), whole[2]) and not torch.equal(model(images[20:]), whole[2])
