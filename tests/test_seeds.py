import numpy as np
import pytest

from stages.core.store import arrays
from stages.seeds import Params, main
from tests.helpers.small import lists, write_features, write_images


@pytest.fixture
def world(tmp_path):
    images = write_images(tmp_path / "images")
    return images, write_features(tmp_path / "features", images)


def params(largest, **changes):
    return Params(**({"whitening": "none", "whitened_dim": 8, "largest": largest} | changes))


def run(world, tmp_path, largest, **changes):
    main(*world, tmp_path / "seeds", params=params(largest), lists=lists(**changes), seed=0)
    return arrays.open(tmp_path / "seeds" / "order.zarr")[:]


def test_main__draws_distinct_training_rows_and_prefixes_agree(world, tmp_path):
    order = run(world, tmp_path, 20)
    assert len(set(order.tolist())) == 20 and order.min() >= 0 and order.max() < 48
    np.testing.assert_array_equal(run(world, tmp_path, 10), order[:10])


def test_main__never_draws_more_than_there_are_images(world, tmp_path):
    assert sorted(run(world, tmp_path, 1000).tolist()) == list(range(48))


def test_main__names_the_largest_k_allowed(world, tmp_path):
    message = r"k64 needs 64 clusters; at most 48 are allowed .*48 training images, seeds.largest 1000"
    with pytest.raises(ValueError, match=message):
        run(world, tmp_path, 1000, granularities={"k64": "adaptor/k64"}, models={"encoder": "encoder"})
    with pytest.raises(ValueError, match=r"at most 6 are allowed"):
        run(world, tmp_path, 6)
