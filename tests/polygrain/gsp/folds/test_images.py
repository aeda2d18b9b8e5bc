import pytest

from polygrain.gsp.folds.images import read_images
from tests.helpers.small import write_images


def test_read_images__labels_splits_and_names(tmp_path):
    images = read_images(write_images(tmp_path / "i") / "dots")
    assert images.labels.tolist() == [label for label in range(6) for _ in range(8)]
    assert images.splits.tolist() == ["train"] * 24 + ["test"] * 24
    assert images.names == list("012345")


def test_read_images__raises_without_labels(tmp_path):
    with pytest.raises(ValueError, match="without a class"):
        read_images(write_images(tmp_path / "i", labelled=False) / "dots")
