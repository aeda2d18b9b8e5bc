import json

import numpy as np
import pytest

from polygrain.store import arrays
from polygrain.tll.adaptation import descriptors, reduction
from stages import tll_pca
from stages.tll_pca import split
from tests.helpers.pairs import FEATURES, PCA, paint, run


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder, flips = tmp_path_factory.mktemp("pca"), FEATURES.model_copy(update={"flips": True})
    return run(folder / "data", paint(folder / "raw"), "tll_features", features=flips)


def fit(data, output, **changes):
    tll_pca.main(data / "tll_features/own", output, study="own", params=PCA.model_copy(update=changes), seed=3)
    return reduction.load(output / "pca.safetensors"), json.loads((output / "summary.json").read_text())


def test_main__each_run_is_fitted_on_its_training_pairs(data, tmp_path):
    fits, summary = fit(data, tmp_path / "out")
    splits = arrays.open(tmp_path / "out/splits.zarr")[:]
    assert np.array_equal(splits, split(3, 3, 24, 0.25)) and len(fits) == 4
    known = descriptors.read(data / "tll_features/own")
    for one, chosen in zip(fits, [*~splits, np.ones(24, bool)], strict=True):
        expected = np.concatenate([side[chosen] for view in known.values for side in view])
        np.testing.assert_allclose(one.mean, expected.mean(0), atol=1e-5)
    assert (summary["train"], summary["test"], summary["views"], summary["fit"]) == (18, 6, 2, "train")
    assert 0 < summary["explained"] <= 1


def test_main__the_published_fit_is_one_for_all(data, tmp_path):
    fits, summary = fit(data, tmp_path / "out", fit="all")
    assert len(fits) == 1 and summary["fit"] == "all"


@pytest.mark.parametrize(
    ("changes", "message"), [({"components": 49}, "components is 49.*at most 48"), ({"test_share": 0.05}, "more pairs")]
)
def test_main__raise_and_leave_nothing(data, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        fit(data, tmp_path / "out", **changes)
    assert not list(tmp_path.iterdir())


def test_split__has_the_published_sizes_and_tests_every_pair_about_as_often():
    drawn = split(0, 20, 4199, 0.25)
    assert drawn.shape == (20, 4199) and (drawn.sum(1) == 1049).all()
    shares = split(0, 400, 20, 0.25).mean(0)
    assert shares.min() > 0.15 and shares.max() < 0.35
