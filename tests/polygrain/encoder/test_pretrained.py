import json

import pytest
import timm

from polygrain.encoder.pretrained import is_hub, published, read_hub
from tests.helpers.small import write_encoder


@pytest.mark.parametrize("name", ["mobilenetv2_100.ra_in1k", "resnet50.tv_in1k", "vit_base_patch16_siglip_224.webli"])
def test_published__is_what_timm_has_for_the_full_name(name):
    found, known = published(name), timm.get_pretrained_cfg(name)
    for field in ("input_size", "mean", "std", "interpolation", "classifier", "license"):
        assert getattr(found, field) == getattr(known, field), field


def test_published__of_two_classifiers():
    assert published("deit_tiny_distilled_patch16_224").classifier == ("head", "head_dist")


def test_is_hub__tells_the_folders_apart(tmp_path):
    assert not is_hub(write_encoder(tmp_path / "ours"))
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "resnet18", "pretrained_cfg": {}}))
    assert is_hub(tmp_path)
    with pytest.raises(ValueError, match=r"config.json is missing or damaged \(pretrained_cfg.input_size: "):
        read_hub(tmp_path)


@pytest.mark.parametrize("content", [None, "[", "\x00"])
def test_is_hub__names_a_missing_or_damaged_file(tmp_path, content):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(
        ValueError, match=r"config.json is missing or damaged .*; give a folder with timm's config.json"
    ):
        is_hub(tmp_path)
