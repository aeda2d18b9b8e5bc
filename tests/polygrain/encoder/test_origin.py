import json

import pytest
import timm
import torch
from pydantic import ValidationError
from safetensors.torch import save_file

from polygrain.encoder.origin import Origin, is_hub
from tests.helpers.small import CONFIG, write_encoder

VALUES = {"source": "folder", "path": "x", "architecture": None, "side": None}
VALUES |= {"kwargs": {}, "mean": None, "std": None, "interpolation": None}
FILE = {"source": "file", "side": 32}
KNOWN = {"input_size": [3, 64, 64], "mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6], "interpolation": "bilinear"}


def origin(**changes):
    return Origin(**(VALUES | changes))


def write_hub(folder, **changes):
    """A folder as timm's `save_for_hf` writes it."""
    torch.manual_seed(0)
    save_file(timm.create_model("mobilenetv2_035", num_classes=7).state_dict(), folder / "model.safetensors")
    said = {"architecture": "mobilenetv2_035", "num_classes": 7, "num_features": 1280, "pretrained_cfg": KNOWN}
    (folder / "config.json").write_text(json.dumps(said | changes))
    return folder


def test_describe__published_weights_say_their_input(tmp_path):
    config = origin(**FILE, architecture="resnet50.tv_in1k").describe(tmp_path)
    known = timm.get_pretrained_cfg("resnet50.tv_in1k")
    assert (config.mean, config.std, config.interpolation) == (known.mean, known.std, "bilinear")
    assert (config.size, config.resize, config.kwargs) == (32, 32, {})


@pytest.mark.parametrize("given", [{}, {"mean": [0.5] * 3}])
def test_origin__asks_for_the_input_of_a_file_that_nobody_can_know(given):
    message = r"no file says how its weights want the input.*in full \(architecture: mobilenetv2_100.ra_in1k\), or"
    with pytest.raises(ValidationError, match=message):
        origin(**FILE, architecture="mobilenetv2_100", **given)
    assert origin(**FILE, architecture="mobilenetv2_100", mean=[0.5] * 3, std=[0.5] * 3)


@pytest.mark.parametrize("source", ["timm", "file"])
def test_origin__refuses_an_input_that_the_network_does_not_take(source):
    with pytest.raises(ValidationError, match=r"side is 100, and .* patches of 14 px: .* such as 98 or 112"):
        origin(source=source, architecture="vit_small_patch14_reg4_dinov2.lvd142m", side=100)


def test_build__a_folder_of_timm_s_hub(tmp_path):
    model = origin().build(write_hub(tmp_path))
    assert (model.config.side, model.config.interpolation) == (64, "bilinear")
    assert model.config.mean == (0.1, 0.2, 0.3) and model.config.std == (0.4, 0.5, 0.6)
    torch.manual_seed(0)
    published = timm.create_model("mobilenetv2_035", num_classes=7).eval().requires_grad_(False)
    images = torch.rand(2, 3, 64, 64)
    expected = published.forward_head(published.forward_features((images - model.mean) / model.std), pre_logits=True)
    torch.testing.assert_close(model.features(images), expected)
    assert origin(side=32, mean=[0.5] * 3).describe(tmp_path).side == 32


def test_build__a_folder_of_ours(tmp_path):
    assert origin().build(write_encoder(tmp_path / "given")).config == CONFIG
    with pytest.raises(ValueError, match=r"encoder.side is 32, which the config.json of .* says itself: give null"):
        origin(side=32).describe(tmp_path / "given")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "hf-hub:a/b"}, "timm does not know 'hf-hub:a/b'"),
        ({"model_args": {"checkpoint_path": "/etc/passwd"}}, "'checkpoint_path' cannot be set"),
        ({"pretrained_cfg": KNOWN | {"input_size": [3, 8, 10**9]}}, "size: "),
        ({"model_type": "dinov2"}, "it is of the library transformers: take the same network from timm"),
    ],
)
def test_describe__a_folder_of_a_hub_with_a_wrong_value(tmp_path, changes, message):
    with pytest.raises(ValueError, match=rf"config.json is missing or damaged .*{message}"):
        origin().describe(write_hub(tmp_path, **changes))


@pytest.mark.parametrize("content", [None, "[", "\x00"])
def test_is_hub__names_a_missing_or_damaged_file(tmp_path, content):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(
        ValueError, match=r"config.json is missing or damaged .*; give a folder with timm's config.json"
    ):
        is_hub(tmp_path)
