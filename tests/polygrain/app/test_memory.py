import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from polygrain.app.memory import fitting, held
from polygrain.encoder.config import AdaptorConfig, Config
from polygrain.encoder.model import Model


def config(architecture: str, **kwargs: int) -> Config:
    return Config(architecture=architecture, kwargs=kwargs, size=32, resize=32, mean=(0.5,) * 3, std=(0.5,) * 3)


VIT = config("vit_tiny_patch16_224", img_size=32, depth=2, embed_dim=24, num_heads=2)


@pytest.mark.parametrize("config", [VIT, config("resnet10t")])
def test_held__is_what_a_real_pass_keeps(config):
    model = Model(config)
    adaptors = AdaptorConfig(names=["one"], width=8, fusion="average")
    model.insert(model.new_adaptors(adaptors), adaptors)
    own = {tensor.data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        embeddings = model(torch.rand(1, 3, 32, 32))
    assert embeddings.requires_grad
    expected = sum(size for place, size in kept.items() if place not in own)
    assert held(config, 8).training == pytest.approx(expected, rel=0.25)
    assert 3 * 32 * 32 * 4 < held(config, 8).seeing < held(config, 8).training * 4


def test_held__grows_with_the_side():
    large = config("resnet10t").model_copy(update={"size": 64, "resize": 64})
    assert held(large).training == pytest.approx(4 * held(config("resnet10t")).training, rel=0.15)


@pytest.mark.parametrize(("memory", "batch"), [(1000, 64), (128, 64), (127, 32), (20, 8), (0, 8)])
def test_fitting__halves_until_it_fits_into_half_of_the_memory(memory, batch):
    assert fitting(64, 1, memory) == batch
