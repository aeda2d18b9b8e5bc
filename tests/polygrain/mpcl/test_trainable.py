import pytest
import torch

from polygrain.encoder import model
from polygrain.encoder.config import Config
from polygrain.mpcl import trainable
from tests.helpers.small import CONFIG

RESNET = Config(architecture="resnet10t", size=32, resize=32, mean=(0.5,) * 3, std=(0.5,) * 3)


@pytest.mark.parametrize("config", [CONFIG, RESNET])
def test_save__then_load_is_the_same_network_and_a_model_folder(tmp_path, config):
    network, images = trainable.TrainableEncoder(config).eval(), torch.rand(2, 3, 32, 32)
    model.save(network, tmp_path)
    assert torch.equal(trainable.load(tmp_path).eval()(images), network(images))
    assert network(images).shape == (2, network.dim)
    if config == CONFIG:
        torch.testing.assert_close(model.load(tmp_path).features(images), network(images))


def test_fix_patches__patch_embedding_and_positions_stay():
    network = trainable.TrainableEncoder(CONFIG)
    trainable.fix_patches(network)
    vit = network.backbone
    assert not vit.pos_embed.requires_grad
    assert not any(p.requires_grad for p in vit.patch_embed.parameters())
    assert vit.blocks[0].attn.qkv.weight.requires_grad
    kept = vit.patch_embed.proj.weight.clone()
    trainable.fix_patches(network)
    assert torch.equal(vit.patch_embed.proj.weight, kept)  # a second call draws nothing
    positions = vit.pos_embed[0]
    assert (positions[0] == 0).all()  # the class token has no place
    assert len({tuple(row.tolist()) for row in positions[1:]}) == 4 and positions.abs().max() <= 1
