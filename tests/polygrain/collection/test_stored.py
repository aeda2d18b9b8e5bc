from pathlib import Path

import numpy as np
import pytest

from polygrain.collection.listing import Listing
from polygrain.collection.stored import images_of
from polygrain.store import arrays
from polygrain.store.image_table import read_table
from tests.helpers.small import write_images


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_images(tmp_path / "images", classes=3, per_class=2)
    return tmp_path


def test_images_of__files_first_then_squares_else_one_sentence(data: Path) -> None:
    file, paths = data / "gallery/dots/embeddings.parquet", read_table(data / "images/dots")["path"].to_pylist()
    squares = images_of(file, data / "dots.zip", paths)
    pixels = arrays.open(data / "images/dots/pixels.zarr")[:]
    for row, path in enumerate(paths):
        np.testing.assert_array_equal(squares.rectangle(path, 32, "crop"), pixels[row])
        assert squares.image(path).size == (32, 32) and squares.rectangle(path, 16, "crop").shape == (16, 16, 3)
    pictures = squares._replace(paths=paths[3:1:-1]).pictures(slice(0, 2), 32, "crop")
    np.testing.assert_array_equal([picture.pixels for picture in pictures], pixels[[3, 2]])
    (data / "dots" / paths[2]).parent.mkdir(parents=True)
    (data / "dots" / paths[2]).touch()
    assert images_of(file, data / "dots", paths) == Listing(data / "dots", paths, {})
    with pytest.raises(ValueError, match="other images"):
        images_of(file, data / "dots.zip", paths[::-1])
    with pytest.raises(ValueError, match="is not there: put the images back"):
        images_of(data / "embeddings.parquet", data / "gone", paths)
    (data / "dots.zip").touch()
    with pytest.raises(ValueError, match=r"has none as a file, and .*images/none with squares of them is not there"):
        images_of(data / "gallery/none/embeddings.parquet", data / "dots.zip", paths)
