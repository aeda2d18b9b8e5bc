import json
from pathlib import Path

import pytest
import timm
from safetensors.torch import save_file

from polygrain.encoder.model import save
from polygrain.new import encoder
from polygrain.new.encoder import Request, choose
from tests.helpers import small


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A MobileNetV2 with its classifier of seven classes."""
    file = tmp_path_factory.mktemp("checkpoint") / "weights.safetensors"
    save_file(timm.create_model("mobilenetv2_035", num_classes=7).state_dict(), file)
    return file


def test_choose__the_shipped_one_is_as_its_folder_says():
    settings, _ = choose(Request(encoder.SHIPPED))
    assert (settings.side, settings.stored, settings.batches) == (48, 72, {})


@pytest.mark.parametrize(("is_installed", "expected"), [(True, (224, 224, 1)), (False, (48, 96, 2.25))])
def test_choose__lite0_where_it_is_installed_else_the_shipped_one(monkeypatch, is_installed, expected):
    monkeypatch.setattr(encoder.installed, "file_of", lambda name: Path("w.pth") if is_installed else None)
    monkeypatch.setattr(encoder.Origin, "build", lambda *given: None)
    settings, words = choose(Request())
    assert (settings.side, settings.stored, settings.cost) == expected
    assert settings.encoder.get("source") == ("installed" if is_installed else None)
    assert is_installed or encoder.SHIPPED in words
    if is_installed:
        assert choose(Request(side=64))[0].side == 64
    else:
        with pytest.raises(ValueError, match="--side is 64"):
            choose(Request(side=64))


@pytest.mark.parametrize(
    ("name", "side", "shorter", "written", "values"),
    [
        ("lite2", None, 400, "tf_efficientnet_lite2.in1k", (260, 260, 1)),
        ("lite0", None, 30, "tf_efficientnet_lite0.in1k", (96, 96, 1)),
        ("resnet50", None, None, "resnet50.a1_in1k", (224, 224, 1)),
        ("resnet18", 64, 30, "resnet18.a1_in1k", (64, 64, 1)),
        ("vit_small_patch14_reg4_dinov2", None, 300, "vit_small_patch14_reg4_dinov2.lvd142m", (280, 294, 1.11)),
        ("vit_small_patch14_reg4_dinov2", 98, None, "vit_small_patch14_reg4_dinov2.lvd142m", (98, 154, 2.47)),
        ("beit_base_patch16_224", None, 170, None, (224, 224, 1)),  # it takes no other
    ],
)
def test_choose__the_side_that_is_named_or_of_the_training_or_of_the_images(
    monkeypatch, name, side, shorter, written, values
):
    monkeypatch.setattr(encoder.installed, "file_of", lambda name: Path("w.pth"))
    monkeypatch.setattr(encoder.Origin, "build", lambda *given: None)
    settings, words = choose(Request(name, side=side, shorter=shorter))
    assert (settings.side, settings.stored, settings.cost) == values
    assert written in (None, settings.encoder["architecture"])
    place = "from an installed package" if "lite" in name else "which timm fetches once"
    assert settings.encoder["source"] == ("installed" if "lite" in name else "timm") and words.endswith(f" px, {place}")


def test_choose__a_checkpoint_with_its_classifier(checkpoint):
    request = Request(str(checkpoint), "mobilenetv2_035", 32, [0.5] * 3, [0.5] * 3, {"pad_type": "same"})
    settings, words = choose(request)
    assert settings.encoder == {
        "source": "file",
        "path": str(checkpoint),
        "architecture": "mobilenetv2_035",
        "side": 32,
        "kwargs": {"pad_type": "same"},
        "mean": [0.5] * 3,
        "std": [0.5] * 3,
    }
    assert words.endswith("with mean 0.5 0.5 0.5 and std 0.5 0.5 0.5, as you said")


def test_choose__a_folder_of_timm_s_hub(tmp_path, checkpoint):
    (tmp_path / "model.safetensors").write_bytes(checkpoint.read_bytes())
    trained = {"input_size": [3, 224, 224], "mean": [0.1] * 3, "std": [0.2] * 3, "classifier": "classifier"}
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "mobilenetv2_035", "pretrained_cfg": trained}))
    settings, words = choose(Request(str(tmp_path), side=32))
    assert settings.encoder == {"source": "folder", "path": str(tmp_path), "side": 32}
    assert f" at 32 px, of {tmp_path}, with mean 0.1 0.1 0.1 and std 0.2 0.2 0.2, as its weights were trained" in words


def test_choose__a_name_of_the_hub_is_that_of_timm(checkpoint):
    name = "https://huggingface.co/timm/{}"
    for plain in ("resnet18", "resnet18.a1_in1k"):
        assert choose(Request(name.format(plain)))[0].encoder == choose(Request(plain))[0].encoder
    with pytest.raises(ValueError, match="does not fit"):  # its architecture is known
        choose(Request(str(checkpoint), name.format("mobilenetv2_100.ra_in1k"), 32))


def test_choose__fewer_images_where_they_are_large():
    assert choose(Request("resnet50", side=448))[0].batches["adaptor"] == 16


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (Request("no/such.pth"), "does not exist"),
        (Request("resnet5o"), "similar names: .*resnet50"),
        (Request("vit_small_patch14_reg4_dinov2", side=96), "patches of 14 px: .* 84 or 98"),
        (Request("CHECKPOINT"), "--architecture"),
        (Request("CHECKPOINT", "mobilenetv2_100.ra_in1k", 32), "does not fit"),
        (Request(encoder.SHIPPED, side=96), "--side is 96"),
    ],
)
def test_choose__asks_or_says_what_is_wrong(wanted, message, checkpoint):
    if wanted.name == "CHECKPOINT":
        wanted = wanted._replace(name=str(checkpoint))
    with pytest.raises(ValueError, match=message):
        choose(wanted)


def test_choose__not_a_model_that_has_adaptors(tmp_path):
    save(small.adapted(small.write_encoder(tmp_path / "encoder"), ["k2"], 0), tmp_path)
    with pytest.raises(ValueError, match="has adaptors already"):
        choose(Request(str(tmp_path)))


def test_choose__follows_no_odd_path(tmp_path):
    (tmp_path / "it's.pth").touch()
    with pytest.raises(ValueError, match="has a quote"):
        choose(Request(str(tmp_path / "it's.pth"), "resnet18.a1_in1k", 32))
