import pytest
import timm
import torch

from polygrain.encoder.families import family_of
from polygrain.encoder.networks import SHORT, build_backbone, build_network

VIT = {"depth": 2, "embed_dim": 24, "num_heads": 2}


def test_places__are_in_the_order_of_the_forward_pass():
    backbone = timm.create_model("resnet18", num_classes=0).eval()
    seen = []
    places = family_of(backbone).places()
    for i, (parent, key) in enumerate(places):
        parent._modules[key].register_forward_hook(lambda *_, i=i: seen.append(i))
    backbone(torch.zeros(1, 3, 32, 32))
    assert seen == list(range(8))


@pytest.mark.parametrize("architecture", ["vit_nonsense", "vgg11"])
def test_build_backbone__refuses_the_unknown_and_what_has_no_blocks(architecture):
    with pytest.raises(ValueError, match=architecture):
        build_backbone(architecture, {})


@pytest.mark.parametrize(("side", "has_cuda", "fused"), [(32, False, False), (16 * 12, False, True), (32, True, True)])
def test_build_network__short_sequences_multiply_plainly_on_a_cpu(monkeypatch, side, has_cuda, fused):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_cuda)
    network = build_network("vit_tiny_patch16_224", VIT | {"img_size": side})
    assert has_cuda or (network.patch_embed.num_patches > SHORT) == fused
    assert [block.attn.fused_attn for block in network.blocks] == [fused] * 2
    images = torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(0))
    found = network(images)
    for block in network.blocks:
        block.attn.fused_attn = not fused
    torch.testing.assert_close(network(images), found)
