import pytest
import torch

from polygrain.encoder.config import AdaptorConfig, Config
from polygrain.encoder.families import family_of
from polygrain.encoder.families.family import outputs_of
from polygrain.encoder.model import Model, load, most_blocks, save
from polygrain.encoder.networks import build_backbone, require_side
from polygrain.encoder.origin import require_fit

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

DEEP = ("convnext", "efficientnet", "mobilenet", "resnet", "swin")


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


@pytest.mark.parametrize(
    ("architecture", "side", "most"),
    [
        ("hiera_tiny_224", 224, 2),  # before its last stage tokens have fewer numbers
        ("levit_128s", 224, 4),
        ("pvt_v2_b0", 64, 1),
        ("caformer_s18", 64, 1),
        ("xcit_nano_12_p16_224", 224, 1),  # its class token comes behind the blocks
        ("convit_tiny", 224, 2),  # and here before the last two
        ("gcvit_xxtiny", 224, 1),  # maps with their channels last, which it does not say
        ("mobilenetv3_small_100", 64, 1),  # its head widens what it pools
    ],
)
def test_families__outputs_that_are_not_pooled_like_the_last_are_not_taken(architecture, side, most):
    backbone = build_backbone(architecture, {}).eval()
    family = family_of(backbone)
    lower, blocks = family.lower(side), family.blocks()
    assert 1 + len(lower) == most
    with torch.no_grad(), outputs_of(blocks) as outputs:
        backbone.forward_features(torch.zeros(2, 3, side, side))
    for place, width in lower:
        assert family.pooled(outputs[blocks[place]]).shape == (2, width)


@torch.no_grad()
def test_pooled__the_last_block_of_a_mean_with_registers_is_the_embedding():
    torch.manual_seed(0)
    kwargs = {"img_size": 32, "patch_size": 16, **VIT}
    config = Config(
        architecture="vit_medium_patch16_reg4_gap_256", kwargs=kwargs, size=32, resize=32, mean=(0.5,) * 3, std=(1,) * 3
    )
    model = Model(config)
    model.backbone.reg_token.normal_(0, 30)
    images = torch.rand(2, 3, 32, 32)
    last = model.backbone.blocks[-1]
    with outputs_of([last]) as outputs:
        expected = model.features(images)
    torch.testing.assert_close(model.family.pooled(outputs[last]), expected)


@pytest.mark.parametrize(
    "architecture", [pytest.param(name, marks=[pytest.mark.slow] * name.startswith(DEEP)) for name in FAMILIES]
)
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
        layer.requires_grad_(True).up.data.normal_(0, 0.01)
    model(images)[:, 0].sum().backward()
    assert all(layer.down.weight.grad.abs().sum() > 0 for layer in model.adaptors)
    model.requires_grad_(False).prepare()  # as `load` does
    adapted = model(images)
    assert not torch.equal(adapted, plain) and (adapted * plain).sum(1).min() > 0.9
    save(model, tmp_path)
    again = load(tmp_path)
    assert again.config == model.config and torch.equal(again(images), adapted)
    wide = Model(config.model_copy(update={"adaptors": adaptors, "blocks": most_blocks(model)}))
    wide.load_state_dict(model.state_dict())
    # The last block gives the embedding itself, but where a convolution widens it.
    assert len(wide.widths) == blocks + architecture.startswith(("mobilenet", "efficientnet"))
    parts = wide.block_outputs(images).split(wide.widths, 1)
    assert all(torch.allclose(part.norm(dim=1), torch.ones(2)) for part in parts)
    torch.testing.assert_close(parts[0], adapted)
    if again.takes_other_sides:
        seen = again.at_side(2 * side, False)(images)
        assert seen.shape == plain.shape and torch.isfinite(seen).all() and not torch.allclose(seen, adapted)
    else:
        with pytest.raises(ValueError, match=rf"beit.* is built for inputs of {side} px, not of {2 * side}"):
            again.at_side(2 * side, False)


@pytest.mark.parametrize(
    "architecture", [pytest.param(name, marks=[pytest.mark.slow] * name.startswith(DEEP)) for name in FAMILIES]
)
@torch.no_grad()
def test_families__see_a_rectangle_whole_or_in_squares(architecture):
    torch.manual_seed(0)
    config = config_of(architecture).model_copy(update={"shape": "whole"})
    model, side = Model(config), config.side
    wide = torch.rand(2, 3, side, 2 * side, generator=torch.Generator().manual_seed(1))
    seen, square = model(wide), model(wide[..., :side])
    plain = Model(config_of(architecture))
    plain.load_state_dict(model.state_dict())
    torch.testing.assert_close(square, plain(wide[..., :side]))  # a square is seen as ever
    halves = torch.nn.functional.normalize(square + model(wide[..., side:]), dim=1)
    if architecture.startswith("beit"):
        torch.testing.assert_close(seen, halves)
    else:
        assert model.takes_other_sides and not torch.equal(seen, halves)
    tall = model(wide.transpose(2, 3))
    assert seen.shape == tall.shape and torch.isfinite(tall).all()


@pytest.mark.parametrize(
    ("architecture", "side", "message"),
    [
        ("vit_small_patch14_reg4_dinov2.lvd142m", 32, r"side is 32, and .* patches of 14 px: .*such as 28 or 42"),
        ("swin_tiny_patch4_window7_224.ms_in1k", 96, r"side is 96, which swin.* does not take \(.*64"),
    ],
)
def test_require_side__says_which_sides_fit(architecture, side, message):
    with pytest.raises(ValueError, match=message):
        require_side(Model(config_of(architecture)).backbone, architecture, side)
