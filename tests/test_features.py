import json

import numpy as np
import pytest
import torch

from polygrain.encoder.model import load, save
from polygrain.store import arrays
from stages.features import Params, main
from tests.helpers.small import write_encoder, write_images


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float16", 1e-3)])
def test_main__equals_one_image_at_a_time(tmp_path, dtype, tolerance):
    images, encoder = write_images(tmp_path / "images"), write_encoder(tmp_path / "encoder")
    params = Params(unit_length=True, dtype=dtype, precision="float32", batch=7)
    main(images / "dots", encoder, tmp_path / "features", task="dots", params=params)
    features = arrays.open(tmp_path / "features" / "features.zarr")
    model, pixels = load(encoder), arrays.open(images / "dots" / "pixels.zarr")[:]
    assert features.dtype == dtype and features.shape == (len(pixels), 24)
    for row in (0, 20, len(pixels) - 1):
        expected = model(torch.from_numpy(pixels[row : row + 1]).permute(0, 3, 1, 2))[0].numpy()
        np.testing.assert_allclose(features[row : row + 1][0].astype(np.float32), expected, atol=tolerance)


def test_main__says_when_the_stored_size_is_not_the_encoders(tmp_path):
    images, encoder = write_images(tmp_path / "images"), write_encoder(tmp_path / "encoder")
    text = (encoder / "config.json").read_text()
    (encoder / "config.json").write_text(text.replace('"resize": 32', '"resize": 36'))
    with pytest.raises(ValueError, match=r"stored at 32 px, the model expects 36: set images.side and encoder.resize"):
        params = Params(unit_length=True, dtype="float32", precision="float32", batch=7)
        main(images / "dots", encoder, tmp_path / "features", task="dots", params=params)
    assert not (tmp_path / "features").exists()


def test_main__the_class_token_as_it_is_keeps_its_length(tmp_path):
    images, encoder = write_images(tmp_path / "images"), write_encoder(tmp_path / "encoder")
    params = Params(unit_length=False, dtype="float32", precision="float32", batch=7)
    main(images / "dots", encoder, tmp_path / "features", task="dots", params=params)
    features = arrays.open(tmp_path / "features" / "features.zarr")[:]
    pixels = torch.from_numpy(arrays.open(images / "dots" / "pixels.zarr")[:]).permute(0, 3, 1, 2)
    model = load(encoder)
    np.testing.assert_allclose(features, model.features(pixels).numpy(), atol=1e-4)
    assert np.linalg.norm(features, axis=1).min() > 2  # so it is not the embedding
    np.testing.assert_allclose(features / np.linalg.norm(features, axis=1, keepdims=True), model(pixels), atol=1e-5)


@pytest.mark.parametrize("change", [{"mirrored": True}, {"reduced": 4}])
def test_main__what_has_no_class_token_of_its_own_has_no_length(tmp_path, change):
    images, encoder = write_images(tmp_path / "images"), write_encoder(tmp_path / "encoder")
    model = load(encoder)
    if "reduced" in change:
        model.reduce(torch.eye(4, 24), torch.zeros(4))
        save(model, encoder)
    else:
        config = json.loads((encoder / "config.json").read_text())
        (encoder / "config.json").write_text(json.dumps(config | change))
    params = Params(unit_length=False, dtype="float32", precision="float32", batch=7)
    with pytest.raises(ValueError, match=r"features.unit_length is false, but .*encoder is no plain encoder"):
        main(images / "dots", encoder, tmp_path / "features", task="dots", params=params)
    assert not (tmp_path / "features").exists()
