import pytest

from polygrain.gsp.folds.images import read_images
from tests.helpers.small import write_images


def test_read_images__raises_without_labels(tmp_path):
    with pytest.raises(ValueError, match="without a class"):
        read_images(write_images(tmp_path / "i", labelled=False) / "dots")
