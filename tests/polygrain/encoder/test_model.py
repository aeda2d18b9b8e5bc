import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import timm
import torch
from PIL import Image

from polygrain.encoder.adaptors import Adaptors, fuse
from polygrain.encoder.config import AdaptorConfig, Config
from polygrain.encoder.model import Model, load, merge, most_blocks, save
from polygrain.encoder.views import squares_along
from tests.helpers.small import adapted, write_encoder

CONFIG = Config(
    architecture="vit_tiny_patch16_224",
    kwargs={"img_size": 32, "patch_size": 16, "depth": 2, "embed_dim": 24, "num_heads": 2},
    size=32,
    resize=40,
    mean=(0.4, 0.5, 0.6),
    std=(0.2, 0.3, 0.4),
)


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return Model(CONFIG)


@pytest.fixture
def fused():
    torch.manual_seed(0)
    encoder = Model(CONFIG)
    generator = torch.Generator().manual_seed(1)
    sets = [[Adaptors(24, 4, 1, "average") for _ in range(2)] for _ in range(3)]
    for parameter in torch.nn.ModuleList([layer for layers in sets for layer in layers]).parameters():
        parameter.data.normal_(0, 0.5, generator=generator)
    layers = fuse(sets, "attention", generator, std=1.0)
    encoder.insert(layers, AdaptorConfig(names=["k2", "k4", "k8"], width=4, fusion="attention"))
    return encoder.requires_grad_(False).eval()


@pytest.fixture
def images():
    return torch.randint(0, 256, (5, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))


def test_load__gives_back_the_same_model(tmp_path, fused, images):
    save(fused, tmp_path)
    again = load(tmp_path)
    assert again.config == fused.config
    assert torch.equal(again(images), fused(images))
    assert not any(parameter.requires_grad for parameter in again.parameters()) and not again.training


def test_forward__embeddings_have_unit_length_and_uint8_equals_floats(encoder, images):
    embeddings = encoder(images)
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(5))
    torch.testing.assert_close(encoder(images.float() / 255), embeddings)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64, "autocast"])
def test_forward__another_type_gives_nearly_the_same_embeddings(fused, images, kind):
    fused.reduce(torch.randn(8, 24, generator=torch.Generator().manual_seed(3)), torch.zeros(8))
    expected = fused(images)
    if kind != "autocast":
        fused.to(kind)
    with torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
        embeddings = fused(images)
    assert embeddings.dtype == torch.float32
    assert (embeddings * expected).sum(1).min() > 0.999


def test_features__are_the_class_token_after_the_last_norm(encoder, images):
    x = (images.float() / 255 - encoder.mean) / encoder.std
    backbone = encoder.backbone
    tokens = torch.cat([backbone.cls_token.expand(5, -1, -1), backbone.patch_embed(x)], 1) + backbone.pos_embed
    for block in backbone.blocks:
        tokens = block(tokens)
    torch.testing.assert_close(encoder.features(images), backbone.norm(tokens)[:, 0], rtol=1e-4, atol=1e-5)


def test_mask__takes_an_adaptor_out_and_puts_it_back(fused, images):
    before, weights = fused.with_attention(images)
    assert torch.equal(before, fused(images))
    torch.testing.assert_close(weights.sum(2), torch.ones(5, 2))
    masked = fused.mask("k4")
    assert torch.equal(masked.with_attention(images)[1][:, :, 1], torch.zeros(5, 2))
    assert not torch.allclose(masked(images), before)
    assert torch.equal(fused.mask()(images), before)
    for names, message in ((("k3",), "no adaptor k3; known: k2, k4, k8"), (("k2", "k4", "k8"), "leave no adaptor")):
        with pytest.raises(ValueError, match=message):
            fused.mask(*names)


def test_transform__resizes_then_crops_the_centre(encoder):
    stripes = np.zeros((80, 120, 3), np.uint8)
    stripes[:, 20:100] = 200  # the square that is left is the bright middle
    tensor = encoder.transform(Image.fromarray(stripes))
    assert tensor.shape == (3, 32, 32) and tensor.dtype == torch.uint8
    assert tensor.float().mean() > 195


def test_without_adaptors__is_the_encoder_below_the_adaptors(encoder, fused, images):
    assert torch.equal(fused.without_adaptors()(images), encoder(images)) and not torch.equal(
        fused(images), encoder(images)
    )


def resized(images, side):
    x = torch.nn.functional.interpolate(images.float() / 255, (side, side), mode="bicubic", antialias=True)
    return x.clamp(0, 1)


def test_seen__a_vit_sees_the_resized_image_with_its_positions_resized(encoder, images):
    peer = timm.create_model(CONFIG.architecture, num_classes=0, dynamic_img_size=True, **CONFIG.kwargs).eval()
    peer.load_state_dict(encoder.backbone.state_dict())
    with torch.no_grad():
        expected = peer.forward_features((resized(images, 48) - encoder.mean) / encoder.std)[:, 0]
    seen = encoder.at_side(48, False)
    torch.testing.assert_close(seen(images), torch.nn.functional.normalize(expected, dim=1), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(seen(images), encoder(images), atol=1e-3)
    assert (seen.config.side, seen.config.size) == (48, 32)


@pytest.mark.parametrize("network", ["vit", "cnn"])
def test_scaled__stored_squares_twice_the_input_are_resized_first(encoder, images, network):
    if network == "cnn":
        torch.manual_seed(0)
        encoder = Model(CONFIG.model_copy(update={"architecture": "resnet10t", "kwargs": {}}))
    large = torch.randint(0, 256, (5, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    model = Model(encoder.config.model_copy(update={"size": 64, "resize": 64, "scaled": 32}))
    model.load_state_dict(encoder.state_dict())
    torch.testing.assert_close(model(large), encoder(resized(large, 32)))
    seen = model.at_side(64, False)
    assert (seen.config.side, seen.config.scaled) == (64, None)
    torch.testing.assert_close(seen(large), encoder.at_side(64, False)(large), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(model.at_side(48, False)(large), encoder.at_side(48, False)(large), atol=1e-5, rtol=1e-4)
    back = seen.at_side(32, False)
    assert back.config == model.config and torch.equal(back(large), model(large))


def test_seen__mirrored_is_the_mean_with_the_mirror_image(fused, images):
    mirrored = fused.at_side(32, True)
    both = fused(images) + fused(torch.from_numpy(images.numpy()[:, :, :, ::-1].copy()))
    torch.testing.assert_close(mirrored(images), both / both.norm(dim=1, keepdim=True))
    torch.testing.assert_close(mirrored(images.flip(3)), mirrored(images))


def test_parts__are_the_class_tokens_of_the_last_blocks_as_timm_gives_them(fused, images):
    wide = Model(fused.config.model_copy(update={"blocks": 2}))
    wide.load_state_dict(fused.state_dict())
    x = (images.float() / 255 - wide.mean) / wide.std
    lower, last = wide.backbone.forward_intermediates(
        x, norm=True, return_prefix_tokens=True, intermediates_only=True, output_fmt="NLC"
    )
    tokens = [last[1][:, 0], lower[1][:, 0]]
    expected = torch.cat([token / token.norm(dim=1, keepdim=True) for token in tokens], 1)
    torch.testing.assert_close(wide.block_outputs(images), expected)
    torch.testing.assert_close(wide(images), expected / 2**0.5)
    torch.testing.assert_close(wide(images)[:, :24] * 2**0.5, fused(images))
    assert wide.dim == 48 and wide.widths == [24, 24] and most_blocks(wide) == most_blocks(fused) == 2


def test_parts__of_a_mobilenet_are_the_means_of_its_maps(images):
    torch.manual_seed(0)
    config = CONFIG.model_copy(update={"architecture": "mobilenetv2_050", "kwargs": {}, "blocks": 3})
    model = Model(config)
    x = (images.float() / 255 - model.mean) / model.std
    *first, last = model.backbone.blocks
    before = model.backbone.bn1(model.backbone.conv_stem(x))
    for stage in first:
        before = stage(before)
    map_of = [model.backbone.forward_features(x), last(before), before]
    expected = [m.mean((2, 3)) / m.mean((2, 3)).norm(dim=1, keepdim=True) for m in map_of]
    torch.testing.assert_close(model.block_outputs(images), torch.cat(expected, 1), atol=1e-5, rtol=1e-4)
    assert model.widths == [1280, 160, 80]


def test_parts__other_threads_are_left_out(fused, images):
    wide = fused.at_side(32, False, 2)
    batches = [images.roll(shift, 0) for shift in range(5)] * 6
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(wide, batches))
    for batch, embeddings in zip(batches, results, strict=True):
        torch.testing.assert_close(embeddings, wide(batch))


def test_reduce__puts_a_linear_map_behind_in_place_of_the_one_before(encoder, images):
    embeddings, generator = encoder(images), torch.Generator().manual_seed(0)
    np.testing.assert_array_equal(encoder.in_front(embeddings.numpy()), embeddings)
    for dim in (7, 3):
        weight, bias = torch.randn(dim, 24, generator=generator), torch.randn(dim, generator=generator)
        encoder.reduce(weight, bias)
        expected = torch.nn.functional.normalize(embeddings @ weight.T + bias, dim=1)
        torch.testing.assert_close(encoder(images), expected)
        assert encoder.dim == encoder.config.reduced == dim
        assert encoder.in_front(encoder(images).numpy()).shape == (5, dim)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"architecture": "hf-hub:timm/resnet18"}, "timm does not know 'hf-hub:timm/resnet18'"),
        ({"kwargs": {"checkpoint_path": "/etc/passwd"}}, "'checkpoint_path' cannot be set"),
        ({"std": [0.5, 0, 0.5]}, "std.1: Input should be greater than or equal to 0.001"),
        ({"mean": [0.5, float("nan"), 0.5]}, "mean.1: "),
        ({"size": 10**9}, "size: Input should be less than or equal to 4096"),
        ({"size": 64, "resize": 32}, "resize is 32, smaller than size, 64"),
        ({"blocks": 3}, "blocks is 3; vit_tiny_patch16_224 has 2 that can be taken"),
        ({"reduced": 4096}, "does not fit the encoder: missing reduction"),
    ],
)
def test_load__takes_the_folder_for_hostile(tmp_path, change, reason):
    save(Model(CONFIG), tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ValueError, match=reason) as caught:
        load(tmp_path)
    assert str(tmp_path) in str(caught.value)


def rectangles(*shapes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(2, 3, *shape, generator=generator) for shape in shapes]


def test_size_of_input__keeps_proportions_in_whole_patches(encoder):
    scaled = Model(encoder.config.model_copy(update={"size": 64, "resize": 64, "scaled": 32, "shape": "whole"}))
    sizes = {(64, 64): (32, 32), (64, 96): (32, 48), (112, 64): (64, 32), (64, 192): (32, 96)}
    assert {size: scaled.size_of_input(*size) for size in sizes} == sizes
    plain = Model(encoder.config.model_copy(update={"shape": "whole"}))
    assert plain.size_of_input(32, 56) == (32, 64) and plain.size_of_input(32, 32) == (32, 32)


def test_seen__a_vit_sees_a_rectangle_with_its_positions_resized(encoder):
    model = Model(encoder.config.model_copy(update={"shape": "whole"}))
    model.load_state_dict(encoder.state_dict())
    wide, square = rectangles((32, 64), (32, 32))
    positions = timm.layers.resample_abs_pos_embed(model.backbone.pos_embed, (2, 4), (2, 2), num_prefix_tokens=1)
    x = (wide - model.mean) / model.std
    tokens = model.backbone.patch_embed.proj(x).flatten(2).transpose(1, 2)
    tokens = torch.cat([model.backbone.cls_token.expand(2, -1, -1), tokens], 1) + positions
    expected = model.backbone.norm(model.backbone.blocks(tokens))[:, 0]
    torch.testing.assert_close(model(wide), torch.nn.functional.normalize(expected, dim=1))
    torch.testing.assert_close(model(square), encoder(square))


def test_transform__gives_the_whole_image_less_the_border(encoder):
    config = encoder.config.model_copy(update={"size": 24, "resize": 32, "shape": "whole"})
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 128, 3), dtype=np.uint8))
    whole = np.asarray(image.resize((64, 32), Image.Resampling.LANCZOS))
    seen = Model(config).transform(image)
    np.testing.assert_array_equal(seen.permute(1, 2, 0), whole[4:-4, 4:-4])


def test_squares_along__cover_the_longer_side_at_equal_distances():
    images = torch.arange(5 * 3 * 12.0).reshape(1, 5, 3, 12)[:, :3]
    assert [square[0, 0, 0, 0].item() for square in squares_along(images)] == [0, 3, 6, 9]
    assert [square[0, 0, 0, 0].item() / 12 for square in squares_along(images.mT)] == [0, 0.25, 0.5, 0.75]
    assert len(squares_along(torch.zeros(1, 3, 4, 5))) == 2


def test_merge__sets_of_different_width_are_refused(tmp_path):
    encoder = write_encoder(tmp_path / "encoder")
    wide, narrow = (adapted(encoder, [name], 0, 0.3) for name in ("k4", "k8"))
    for layer in narrow.adaptors:
        layer.width = 2
    with pytest.raises(ValueError, match=r"different widths \[2, 4\]"):
        merge([wide, narrow], ["k4", "k8"], "average", torch.Generator(), 0.0)


def test_merge__one_set_is_that_set(tmp_path):
    model = adapted(write_encoder(tmp_path / "encoder"), ["k4"], 0, 0.3)
    images = torch.rand(2, 3, 32, 32)
    merged = merge([model], ["k4"], "average", torch.Generator(), 0.0)
    torch.testing.assert_close(merged(images), model.eval()(images))
