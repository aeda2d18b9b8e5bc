import json

import numpy as np
import pytest
import torch

from polygrain.encoder.model import load, save
from polygrain.store import arrays
from stages.features import Params, main
from tests.helpers.small import write_encoder, write_images


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("features")
    return write_images(folder / "images") / "dots", write_encoder(folder / "encoder")


def params(**changes):
    return Params(**({"unit_length": True, "dtype": "float32"} | changes))


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float16", 1e-3)])
def test_main__equals_one_image_at_a_time(world, tmp_path, dtype, tolerance):
    images, encoder = world
    main(*world, tmp_path / "features", task="dots", params=params(dtype=dtype))
    features = arrays.open(tmp_path / "features" / "features.zarr")
    model, pixels = load(encoder), arrays.open(images / "pixels.zarr")[:]
    assert features.dtype == dtype and features.shape == (len(pixels), 24)
    for row in (0, 20, len(pixels) - 1):
        expected = model(torch.from_numpy(pixels[row : row + 1]).permute(0, 3, 1, 2))[0].numpy()
        np.testing.assert_allclose(features[row : row + 1][0].astype(np.float32), expected, atol=tolerance)


def test_main__the_class_token_as_it_is_keeps_its_length(world, tmp_path):
    images, encoder = world
    main(*world, tmp_path / "features", task="dots", params=params(unit_length=False))
    features = arrays.open(tmp_path / "features" / "features.zarr")[:]
    pixels = torch.from_numpy(arrays.open(images / "pixels.zarr")[:]).permute(0, 3, 1, 2)
    np.testing.assert_allclose(features, load(encoder).features(pixels).numpy(), atol=1e-4)
    assert np.linalg.norm(features, axis=1).min() > 2  # so it is not the embedding


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"resize": 36}, r"stored at 32 px, the model expects 36: set images.side and encoder.resize"),
        ({"reduced": 4}, r"features.unit_length is false, but .*encoder is no plain encoder"),
    ],
)
def test_main__refuses_an_encoder_that_does_not_fit(world, tmp_path, change, message):
    model = load(world[1])
    if "reduced" in change:
        model.reduce(torch.eye(4, 24), torch.zeros(4))
    (tmp_path / "encoder").mkdir()
    save(model, tmp_path / "encoder")
    file = tmp_path / "encoder/config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ValueError, match=message):
        main(
            world[0], tmp_path / "encoder", tmp_path / "out", task="dots", params=params(unit_length="resize" in change)
        )
    assert not (tmp_path / "out").exists()
