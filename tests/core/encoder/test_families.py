"""Every family of networks goes the whole way on random weights: checked, adapted, seen at another side, kept."""

import pytest
import torch

from stages.core.encoder.config import AdaptorConfig, Config
from stages.core.encoder.model import Model, load, most_blocks, save
from stages.core.encoder.networks import require_side
from stages.core.encoder.origin import require_fit

VIT = {"depth": 2, "embed_dim": 24, "num_heads": 2}
# Each with its side, px, its blocks, and arguments that make it small.
FAMILIES = {
    "vit_small_patch16_224.dino": (32, 2, VIT),
    "vit_small_patch14_reg4_dinov2.lvd142m": (28, 2, VIT),
    "vit_small_patch16_dinov3.lvd1689m": (32, 2, VIT | {"embed_dim": 32}),
    "vit_base_patch16_siglip_224.webli": (32, 2, VIT),
    "beit_base_patch16_224.in22k_ft_in22k_in1k": (32, 2, VIT),
    "convnext_atto.d2_in1k": (32, 12, {}),
    "efficientnet_b0.ra_in1k": (32, 16, {}),
    "mobilenetv2_050.lamb_in1k": (32, 17, {}),
    "resnet50.a1_in1k": (32, 16, {"base_width": 8}),
    "swin_tiny_patch4_window7_224.ms_in1k": (64, 12, {"embed_dim": 12, "window_size": 2}),
}


def config_of(architecture: str) -> Config:
    side, _, kwargs = FAMILIES[architecture]
    is_fixed = architecture.startswith(("vit", "beit", "swin"))
    return Config(
        architecture=architecture,
        kwargs=({"img_size": side} if is_fixed else {}) | kwargs,
        size=side,
        resize=side,
        mean=(0.5,) * 3,
        std=(0.5,) * 3,
    )


@pytest.mark.parametrize("architecture", FAMILIES)
def test_families__go_the_whole_way(architecture, tmp_path):
    torch.manual_seed(0)
    side, blocks, _ = FAMILIES[architecture]
    config = config_of(architecture)
    require_fit(config)
    model = Model(config)
    images = torch.randint(0, 256, (2, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    plain = model(images)
    assert plain.shape == (2, model.dim) and not torch.allclose(plain[0], plain[1])
    adaptors = AdaptorConfig(names=["a", "b"], width=4, fusion="average")
    model.insert(model.new_adaptors(adaptors), adaptors)
    assert len(model.adaptors) == blocks
    torch.testing.assert_close(model(images), plain)
    for layer in model.requires_grad_(False).adaptors:
        layer.up.data.normal_(0, 0.01)
    adapted = model(images)
    assert not torch.equal(adapted, plain) and (adapted * plain).sum(1).min() > 0.9
    save(model, tmp_path)
    again = load(tmp_path)
    assert again.config == model.config and torch.equal(again(images), adapted)
    wide = Model(config.model_copy(update={"adaptors": adaptors, "blocks": most_blocks(model)}))
    wide.load_state_dict(model.state_dict())
    # The last block gives the embedding itself, but where a convolution widens it.
    assert len(wide.widths) == blocks + architecture.startswith(("mobilenet", "efficientnet"))
    parts = wide.parts(images).split(wide.widths, 1)
    assert all(torch.allclose(part.norm(dim=1), torch.ones(2)) for part in parts)
    torch.testing.assert_close(parts[0], adapted)
    if again.takes_other_sides:
        seen = again.seen(2 * side, False)(images)
        assert seen.shape == plain.shape and torch.isfinite(seen).all() and not torch.allclose(seen, adapted)
    else:
        with pytest.raises(ValueError, match=rf"beit.* is built for inputs of {side} px, not of {2 * side}"):
            again.seen(2 * side, False)


@pytest.mark.parametrize(
    ("architecture", "side", "message"),
    [
        ("vit_small_patch14_reg4_dinov2.lvd142m", 32, r"side is 32, and .* patches of 14 px: .*such as 28 or 42"),
        ("vit_small_patch16_dinov3.lvd1689m", 8, r"side is 8, and .* patches of 16 px: .*such as 16$"),
        ("swin_tiny_patch4_window7_224.ms_in1k", 96, r"side is 96, which swin.* does not take \(.*64"),
    ],
)
def test_require_side__says_which_sides_fit(architecture, side, message):
    with pytest.raises(ValueError, match=message):
        require_side(Model(config_of(architecture)).backbone, architecture, side)


def test_require_fit__a_network_without_blocks():
    config = Config(architecture="vgg11", size=32, resize=32, mean=(0.5,) * 3, std=(0.5,) * 3)
    with pytest.raises(ValueError, match="'vgg11' has no residual blocks to adapt; choose a ViT, ConvNeXt or ResNet"):
        require_fit(config)
