import pytest
import torch

from polygrain.encoder.config import Attention
from polygrain.encoder.model import Model
from polygrain.grappa.random_sets import insert_random
from tests.helpers.small import CONFIG


@pytest.mark.parametrize(("count", "fusion"), [(1, "average"), (3, "attention")])
def test_insert_random__near_identity_and_reproducible(count, fusion):
    torch.manual_seed(0)
    plain = Model(CONFIG)
    images = torch.rand(2, 3, 32, 32)
    models = []
    for _ in range(2):
        model = Model(CONFIG)
        model.load_state_dict(plain.state_dict())
        parts = insert_random(model, count, 4, Attention(), 0.02, seed=7)
        assert len(parts) == 2 and model.config.adaptors.fusion == fusion
        torch.testing.assert_close(model(images), plain(images))
        models.append(model.state_dict())
    assert all(torch.equal(tensor, models[1][name]) for name, tensor in models[0].items())
    assert not torch.equal(*[layer.down.weight for layer in parts])


def test_insert_random__starts_small_where_it_must_not_start_at_zero():
    small, zero = (insert_random(Model(CONFIG), 2, 4, Attention(), 0.02, seed=7, up_std=std) for std in (0.01, 0.0))
    ups = torch.stack([layer.up for layer in small])
    assert 0.008 < ups.std() < 0.012 and not torch.equal(ups[0], ups[1])
    assert all(torch.equal(layer.up, torch.zeros_like(layer.up)) for layer in zero)
    # Q and K are those of a start at zero in the first layer, where nothing was drawn before them.
    assert torch.equal(small[0].query.weight, zero[0].query.weight)
