import json

import numpy as np
import pytest
import torch

from polygrain.encoder.model import load, save
from polygrain.encoder.stored import backbone_digest
from polygrain.store import arrays
from polygrain.store.image_table import open_features
from stages.features import Params, main, write
from tests.helpers.small import write_encoder, write_images, write_model


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("features")
    return write_images(folder / "images") / "dots", write_encoder(folder / "encoder")


def params(unit_length=True, dtype="float32"):
    return Params(unit_length=unit_length, dtype=dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float16", 1e-3)])
def test_main__equals_one_image_at_a_time(world, tmp_path, dtype, tolerance):
    images, encoder = world
    main(*world, tmp_path / "features", task="dots", params=params(dtype=dtype), taken=1)
    features = arrays.open(tmp_path / "features" / "features.zarr")
    model, pixels = load(encoder), arrays.open(images / "pixels.zarr")[:]
    assert features.dtype == dtype and features.shape == (len(pixels), 24)
    for row in (0, 20, len(pixels) - 1):
        expected = model(torch.from_numpy(pixels[row : row + 1]).permute(0, 3, 1, 2))[0].numpy()
        np.testing.assert_allclose(features[row : row + 1][0].astype(np.float32), expected, atol=tolerance)


def test_main__the_class_token_as_it_is_keeps_its_length(world, tmp_path):
    images, encoder = world
    main(*world, tmp_path / "features", task="dots", params=params(unit_length=False), taken=1)
    features = arrays.open(tmp_path / "features" / "features.zarr")[:]
    pixels = torch.from_numpy(arrays.open(images / "pixels.zarr")[:]).permute(0, 3, 1, 2)
    np.testing.assert_allclose(features, load(encoder).features(pixels).numpy(), atol=1e-4)
    assert np.linalg.norm(features, axis=1).min() > 2  # so it is not the embedding


def test_main__several_blocks_the_last_first_and_what_they_are(world, tmp_path):
    images, encoder = world
    message = main(*world, tmp_path / "features", task="dots", params=params(dtype="float16"), taken=9)
    features, facts = (
        arrays.open(tmp_path / "features" / "features.zarr")[:],
        json.loads((tmp_path / "features" / "features.json").read_text()),
    )
    pixels = torch.from_numpy(arrays.open(images / "pixels.zarr")[:]).permute(0, 3, 1, 2)
    expected = load(encoder).without_reduction(2).block_outputs(pixels)
    np.testing.assert_allclose(features, expected.numpy(), atol=1e-3)
    assert "48 images" in message and "48 numbers" in message and features.dtype == "float16"
    known = {"side": 32, "widths": [24, 24], "blocks": 2, "embedding": 24}
    assert {name: facts[name] for name in known} == known and facts["digest"] == backbone_digest(load(encoder))
    plain = open_features(tmp_path, ["features"])
    np.testing.assert_array_equal(plain[np.array([7, 0])], features[[7, 0], :24])


def test_main__a_mirrored_encoder_gives_its_embedding_alone(world, tmp_path):
    images, encoder = world[0], write_model(load(world[1]).at_side(32, True), tmp_path / "encoder")
    main(images, encoder, tmp_path / "features", task="dots", params=params(), taken=2)
    pixels = torch.from_numpy(arrays.open(images / "pixels.zarr")[:]).permute(0, 3, 1, 2)
    expected = load(encoder)(pixels).numpy()
    np.testing.assert_allclose(open_features(tmp_path, ["features"])[:], expected, atol=1e-5)
    assert json.loads((tmp_path / "features/features.json").read_text())["blocks"] == 0


def test_write__refuses_what_does_not_fit_half_precision(tmp_path):
    rows = np.full((30, 3), 7e4, np.float32)
    with pytest.raises(ValueError, match="float32"):
        write(tmp_path / "half/features.zarr", 3, "float16", iter([rows]))
    write(tmp_path / "features.zarr", 3, "float32", iter([rows]))
    np.testing.assert_array_equal(arrays.open(tmp_path / "features.zarr")[:], rows)


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
        settings = params(unit_length="resize" in change)
        main(world[0], tmp_path / "encoder", tmp_path / "out", task="dots", params=settings, taken=1)
    assert not (tmp_path / "out").exists()
