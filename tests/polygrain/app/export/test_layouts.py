"""Folders of other libraries: opened as these open them, and compared with the model."""

import numpy as np
import pytest
import timm
import torch
from PIL import Image

from polygrain.app.export import layouts
from polygrain.encoder import load
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
