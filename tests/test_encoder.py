import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from polygrain.encoder.config import Config
from polygrain.encoder.model import Model, load, save
from stages.encoder import Params, build, main
from tests.helpers.small import CONFIG, write_encoder


def params(**changes):
    values = {"source": "folder", "path": "x", "architecture": None, "side": None, "resize": 40}
    values |= {"crop": None, "kwargs": {}, "mean": None, "std": None, "interpolation": None}
    return Params(**(values | changes))


TIMM = {"source": "file", "architecture": "vit_tiny_patch16_224.augreg_in21k", "side": 32}


@pytest.fixture(scope="module")
def vit():
    torch.manual_seed(0)
    colours = {"mean": (0.5,) * 3, "std": (0.5,) * 3}
    return Model(Config(architecture="vit_tiny_patch16_224", kwargs={"img_size": 32}, size=32, resize=40, **colours))


def test_main__copies_a_model_folder_and_sets_the_resize(tmp_path):
    main(write_encoder(tmp_path / "given"), tmp_path / "encoder", params=params(), shape="crop")
    again = load(tmp_path / "encoder")
    assert again.config == CONFIG.model_copy(update={"resize": 40})
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(again(images), load(tmp_path / "given")(images))


def test_main__a_model_of_several_blocks_is_refused(tmp_path):
    save(load(write_encoder(tmp_path / "given")).at_side(32, False, 2), tmp_path / "given")
    with pytest.raises(ValueError, match=r"config.json in .*given has blocks 2: it is a chosen model"):
        main(tmp_path / "given", tmp_path / "encoder", params=params(), shape="crop")
    with pytest.raises(ValueError, match="has blocks 2"):
        params(path="given").agrees({}, tmp_path)


@pytest.mark.parametrize("crop", [64, 48, 24])
def test_main__the_crop_is_scaled_to_the_encoder_s_input(tmp_path, crop):
    main(write_encoder(tmp_path / "given"), tmp_path / "encoder", params=params(resize=64, crop=crop), shape="crop")
    model, plain = load(tmp_path / "encoder"), load(tmp_path / "given")
    assert model.config == CONFIG.model_copy(update={"resize": 64, "size": crop, "scaled": 32})
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    edge = (64 - crop) // 2
    middle = pixels[edge : edge + crop, edge : edge + crop]
    by_hand = [
        np.asarray(Image.fromarray(middle[:, :, i].astype(np.float32)).resize((32, 32), Image.Resampling.BICUBIC))
        for i in range(3)
    ]
    expected = plain(torch.from_numpy(np.stack(by_hand))[None].div(255).clamp(0, 1))
    embeddings = model(model.transform(Image.fromarray(pixels))[None])
    torch.testing.assert_close(embeddings, expected, atol=1e-5, rtol=1e-4)


def test_build__the_original_dino_checkpoint_loads(tmp_path):
    wide, hidden = 384, 1536
    shapes = {"cls_token": (1, 1, wide), "pos_embed": (1, 197, wide), "patch_embed.proj.weight": (wide, 3, 16, 16)}
    layers = {"norm1": (wide,), "attn.qkv": (3 * wide, wide), "attn.proj": (wide, wide)}
    layers |= {"norm2": (wide,), "mlp.fc1": (hidden, wide), "mlp.fc2": (wide, hidden)}
    layers = {f"blocks.{i}.{name}": shape for i in range(12) for name, shape in layers.items()} | {"norm": (wide,)}
    shapes |= {"patch_embed.proj.bias": (wide,)}
    for name, shape in layers.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    generator = torch.Generator().manual_seed(0)
    published = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    assert sum(tensor.numel() for tensor in published.values()) == 21_665_664
    torch.save(published, tmp_path / "dino.pth")
    chosen = params(source="file", architecture="vit_small_patch16_224.dino", side=224, resize=256)
    model = build(chosen, tmp_path / "dino.pth")
    loaded = model.backbone.state_dict()
    assert set(loaded) == set(published)
    assert all(torch.equal(loaded[name], tensor) for name, tensor in published.items())
    # The rest of what makes it that network is no tensor: 6 heads, norms with epsilon 1e-6, ImageNet's colours.
    block = model.backbone.blocks[0]
    assert block.attn.num_heads == 6 and block.norm1.eps == model.backbone.norm.eps == 1e-6
    assert model.config.mean == (0.485, 0.456, 0.406) and model.config.std == (0.229, 0.224, 0.225)


def test_build__refuses_squares_that_are_smaller_than_the_input(tmp_path):
    with pytest.raises(ValueError, match=r"encoder.resize is 24; the encoder in .* needs 32 or more"):
        build(params(resize=24), write_encoder(tmp_path / "given"))
    with pytest.raises(ValueError, match="is larger than resize"):
        params(**TIMM | {"side": 64})


def test_build__a_file_may_be_for_a_larger_input_than_what_is_stored(tmp_path, vit):
    save_file({k: v.contiguous() for k, v in vit.backbone.state_dict().items()}, tmp_path / "weights.safetensors")
    model = build(params(**TIMM, resize=24, crop=24), tmp_path / "weights.safetensors")
    images = torch.rand(2, 3, 24, 24)
    large = torch.nn.functional.interpolate(images, (32, 32), mode="bicubic", antialias=True).clamp(0, 1)
    assert (model.config.size, model.config.side) == (24, 32)
    torch.testing.assert_close(model.backbone.forward_features((large - 0.5) / 0.5)[:, 0], model.features(images))
