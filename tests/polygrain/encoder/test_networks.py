import pytest
import timm
import torch

from polygrain.encoder.config import AdaptorConfig, Config
from polygrain.encoder.model import Model
from polygrain.encoder.networks import SHORT, block_dims, build_backbone, build_network, residual_blocks

SMALL = {
    "vit_tiny_patch16_224": {"img_size": 32, "depth": 2, "embed_dim": 24, "num_heads": 2},
    "vit_small_patch14_reg4_dinov2": {"img_size": 28, "depth": 2, "embed_dim": 24, "num_heads": 2},
    "vit_small_patch16_dinov3": {"img_size": 32, "depth": 2, "embed_dim": 32, "num_heads": 2},
    "convnext_atto": {"depths": (1, 1, 2, 1), "dims": (8, 16, 24, 32)},
    "resnet18": {},
    "resnet26": {},
    "mobilenetv2_035": {},
}


@pytest.mark.parametrize(("architecture", "blocks"), list(zip(SMALL, [2, 2, 2, 5, 8, 8, 17], strict=True)))
def test_residual_blocks__every_one_is_adapted_and_learns(architecture, blocks):
    torch.manual_seed(0)
    backbone = timm.create_model(architecture, num_classes=0, **SMALL[architecture])
    config = Config(architecture="resnet18", size=32, resize=32, mean=(0.5,) * 3, std=(0.5,) * 3)
    model = Model(config)
    model.backbone = backbone.requires_grad_(False).eval()
    size = SMALL[architecture].get("img_size", 32)
    images = torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(1))
    before = model.features(images)
    adaptors = AdaptorConfig(names=["a", "b"], width=4, fusion="attention")
    layers = model.new_adaptors(adaptors)
    assert len(layers) == blocks and [layer.dim for layer in layers] == block_dims(backbone, size)
    model.insert(layers, adaptors)
    torch.testing.assert_close(model.features(images), before)
    for layer in model.adaptors:
        layer.requires_grad_(True)
        layer.up.data.normal_(0, 0.1)
    changed = model.features(images)
    assert not torch.allclose(changed, before)
    changed.square().sum().backward()
    assert all(layer.down.weight.grad.abs().sum() > 0 for layer in model.adaptors)
    assert model.attention(images).shape == (2, blocks, 2)


def test_residual_blocks__are_in_the_order_of_the_forward_pass():
    backbone = timm.create_model("resnet18", num_classes=0).eval()
    seen = []
    places = residual_blocks(backbone)
    for i, (parent, key) in enumerate(places):
        parent._modules[key].register_forward_hook(lambda *_, i=i: seen.append(i))
    backbone(torch.zeros(1, 3, 32, 32))
    assert seen == list(range(8))


@pytest.mark.parametrize("architecture", ["vit_nonsense", "vgg11"])
def test_build_backbone__refuses_the_unknown_and_what_has_no_blocks(architecture):
    with pytest.raises(ValueError, match=architecture):
        build_backbone(architecture, {})


@pytest.mark.parametrize(("side", "fused"), [(32, False), (16 * 12, True)])
def test_build_network__short_sequences_multiply_plainly_on_a_cpu(monkeypatch, side, fused):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    small = SMALL["vit_tiny_patch16_224"] | {"img_size": side}
    network = build_network("vit_tiny_patch16_224", small)
    assert (network.patch_embed.num_patches > SHORT) == fused
    assert [block.attn.fused_attn for block in network.blocks] == [fused] * 2
    images = torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(0))
    found = network(images)
    for block in network.blocks:
        block.attn.fused_attn = not fused
    torch.testing.assert_close(network(images), found)


def test_build_network__on_cuda_attention_stays_fused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    network = build_network("vit_tiny_patch16_224", SMALL["vit_tiny_patch16_224"])
    assert all(block.attn.fused_attn for block in network.blocks)
