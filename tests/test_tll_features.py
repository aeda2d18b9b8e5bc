import numpy as np
import pytest
import torch

from polygrain.store import arrays
from polygrain.tll.extractors import layers
from tests.helpers.pairs import EXTRACTOR, FEATURES, PAIRS, SIZE, paint, run, study


def test_main__descriptors_of_both_sides_and_views(tmp_path, monkeypatch):
    params = FEATURES.model_copy(update={"flips": True})
    monkeypatch.setenv("POLYGRAIN_BATCH", "5")
    data = run(tmp_path / "data", paint(tmp_path / "raw", 12), "tll_features", features=params)
    folder, network = data / "tll_features/own", layers.load(EXTRACTOR, data / "encoder")
    for side in ("left", "right"):
        pixels = torch.from_numpy(arrays.open(data / "tll_pairs/own" / side / "pixels.zarr")[:]).permute(0, 3, 1, 2)
        for view, images in (("", pixels), ("_flipped", pixels.flip(3))):
            descriptors = arrays.open(folder / (side + view) / "descriptors.zarr")[:]
            np.testing.assert_allclose(descriptors, network(images).numpy(), atol=1e-5)
            np.testing.assert_allclose(np.linalg.norm(descriptors, axis=1), 2**0.5, rtol=1e-5)
    images = torch.zeros(1, 3, SIZE, SIZE, dtype=torch.uint8)
    torch.testing.assert_close(layers.restore(folder / "network")(images), network(images))


@pytest.mark.parametrize(
    ("extractor", "side", "message"),
    [("smal", SIZE, "no 'smal'.*alexnet.*small"), ("small", SIZE + 8, f"stored at {SIZE + 8} px.*{SIZE}")],
)
def test_main__raise_and_leave_nothing(tmp_path, extractor, side, message):
    pairs = PAIRS.model_copy(update={"side": side})
    with pytest.raises(ValueError, match=message):
        run(tmp_path, paint(tmp_path / "raw", 2), "tll_features", pairs=pairs, extractor=extractor)
    assert not (tmp_path / "tll_features/own").exists()


def test_params__an_extractor_whose_weights_no_library_has_needs_a_file(tmp_path):
    given = study(tmp_path, extractor="barlow")
    with pytest.raises(ValueError, match="name a file"):
        FEATURES.fits(given)
    own = given.tll["own"].model_copy(update={"weights": "barlow.pth"})
    FEATURES.fits(given.model_copy(update={"tll": {"own": own}}))
