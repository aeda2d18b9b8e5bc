"""Folders of other libraries: opened as these open them, and compared with the model."""

import numpy as np
import pytest
import timm
import torch
from PIL import Image

from polygrain.app.export import layouts
from polygrain.encoder import load
from polygrain.encoder.config import Config
from polygrain.encoder.model import Model
from polygrain.encoder.origin import Origin
from tests.helpers.small import write_encoder, write_model


@pytest.fixture
def encoder(tmp_path):
    return write_encoder(tmp_path / "encoder")


def pictures(count=3):
    rng = np.random.default_rng(0)
    return [Image.fromarray(rng.integers(0, 256, (50, 40, 3), dtype=np.uint8)) for _ in range(count)]


def test_timm__its_embeddings_are_the_encoders(encoder, tmp_path):
    layouts.write_timm(encoder, tmp_path / "out")
    network, model = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True).eval(), load(encoder)
    seen = timm.data.resolve_model_data_config(network)
    assert [*seen["input_size"]] == [3, 32, 32] and seen["crop_pct"] == 1 and [*seen["std"]] == [0.5] * 3
    batch = torch.stack([model.transform(image) for image in pictures()])
    result = torch.nn.functional.normalize(network((batch / 255 - 0.5) / 0.5), dim=1)
    torch.testing.assert_close(result, model(batch), rtol=0, atol=1e-5)


def test_timm__a_class_token_where_timm_takes_the_mean(tmp_path):
    architecture = "vit_small_patch16_dinov3.lvd1689m"
    kwargs = {"img_size": 32, "depth": 2, "embed_dim": 32, "num_heads": 2}
    half = (0.5,) * 3
    config = Config(architecture=architecture, kwargs=kwargs, size=32, resize=32, mean=half, std=half)
    layouts.write_timm(write_model(Model(config), tmp_path / "encoder"), tmp_path / "out")
    # And the folder is an encoder again.
    unsaid = dict.fromkeys(("architecture", "side", "mean", "std", "interpolation"))
    again = Origin(source="folder", path=str(tmp_path / "out"), kwargs={}, **unsaid)
    batch = torch.stack([load(tmp_path / "encoder").transform(image) for image in pictures()])
    expected, result = load(tmp_path / "encoder")(batch), again.build(tmp_path / "out")(batch)
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-5)


def test_timm__an_input_that_is_scaled_first_has_the_side_of_the_network(encoder, tmp_path):
    model = load(encoder).at_side(48, False)
    assert layouts.write_timm(write_model(model, tmp_path / "scaled"), tmp_path / "out").difference <= 1e-5
    network = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True)
    assert timm.data.resolve_model_data_config(network)["input_size"][1] == 48


def test_timm__more_than_an_encoder_is_refused(encoder, tmp_path):
    model = load(encoder).at_side(32, True)
    with pytest.raises(ValueError, match="mirror image"):
        layouts.write_timm(write_model(model, tmp_path / "choice"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_layouts__what_others_wrote_stays(encoder, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/cat.jpg").touch()
    for write in (layouts.write_timm, layouts.write_sentence_transformers):
        with pytest.raises(ValueError, match=r"cat\.jpg"):
            write(encoder, tmp_path / "out")


def test_checked__a_folder_that_differs_is_not_left(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(layouts, "difference", lambda *_, **__: 2e-5)
    with pytest.raises(ValueError, match="differs"):
        layouts.write_timm(encoder, tmp_path / "out")
    assert not (tmp_path / "out").exists()
