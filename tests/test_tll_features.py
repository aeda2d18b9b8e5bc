import numpy as np
import pytest
import torch

from polygrain.store import arrays
from polygrain.tll.extractors import layers
from stages import tll_features
from tests.helpers.pairs import EXTRACTOR, FEATURES, PAIRS, SIZE, paint, run, study
from tests.helpers.small import write_encoder


def test_main__descriptors_of_both_sides_and_views(tmp_path):
    params = FEATURES.model_copy(update={"flips": True, "batch": 5})
    data = run(tmp_path / "data", paint(tmp_path / "raw", 12), "tll_features", features=params)
    folder, network = data / "tll_features/own", layers.load(EXTRACTOR, data / "encoder")
    for side in ("left", "right"):
        pixels = torch.from_numpy(arrays.open(data / "tll_pairs/own" / side / "pixels.zarr")[:]).permute(0, 3, 1, 2)
        for view, images in (("", pixels), ("_flipped", pixels.flip(3))):
            found = arrays.open(folder / (side + view) / "descriptors.zarr")[:]
            np.testing.assert_allclose(found, network(images).numpy(), atol=1e-5)
            np.testing.assert_allclose(np.linalg.norm(found, axis=1), 2**0.5, rtol=1e-5)
    images = torch.zeros(1, 3, SIZE, SIZE, dtype=torch.uint8)
    torch.testing.assert_close(layers.restore(folder / "network")(images), network(images))


def test_main__without_flips(tmp_path):
    data = run(tmp_path / "data", paint(tmp_path / "raw", 4), "tll_features")
    assert {path.name for path in (data / "tll_features/own").iterdir()} == {"left", "right", "network"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extractor": "smal"}, "no 'smal'.*alexnet.*small"),
        ({"extractor": "deep"}, r"no layer 'blocks.7'"),
        ({}, f"stored at {SIZE + 8} px.*{SIZE}"),
    ],
)
def test_main__raise_and_leave_nothing(tmp_path, changes, message):
    size = SIZE + 8 * (not changes)
    data = run(tmp_path, paint(tmp_path / "raw", 2), "tll_pairs", pairs=PAIRS.model_copy(update={"side": size}))
    deep = EXTRACTOR.model_copy(update={"layers": ["blocks.7"]})
    params = FEATURES.model_copy(update={"extractors": {"small": EXTRACTOR, "deep": deep}})
    encoder, output = write_encoder(tmp_path / "encoder"), tmp_path / "tll_features/own"
    lists = study(tmp_path / "raw", **changes)
    with pytest.raises(ValueError, match=message):
        tll_features.main(data / "tll_pairs/own", encoder, output, study="own", params=params, lists=lists)
    assert not output.exists()
