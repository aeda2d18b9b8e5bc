from pathlib import Path

import numpy as np
import pytest

from polygrain.collection.file import Facts, File, write
from polygrain.collection.postprocessing import Comparison
from polygrain.collection.stored import located, stored_beside
from polygrain.store import arrays
from polygrain.store.image_table import read_table
from tests.helpers.small import write_images


def file_of(place: Path, root: Path) -> File:
    place.parent.mkdir(parents=True, exist_ok=True)
    write(place, {"path": ["a.png"], "searched": np.eye(1, dtype=np.float32)}, Facts("abc", 1, Comparison(), root))
    return File(place)


def test_stored_beside__the_pixels_of_a_gallery_else_one_sentence(tmp_path: Path) -> None:
    write_images(tmp_path / "images", classes=3, per_class=2)
    paths, packed = read_table(tmp_path / "images/dots")["path"].to_pylist(), tmp_path / "dots.zip"
    file = file_of(tmp_path / "gallery/dots/embeddings.parquet", packed)
    stored = stored_beside(file, packed, paths)
    pixels = arrays.open(tmp_path / "images/dots/pixels.zarr")[:]
    for row, path in enumerate(paths):
        np.testing.assert_array_equal(stored.rectangle(path, 32, "crop"), pixels[row])
        assert stored.image(path).size == (32, 32) and stored.rectangle(path, 16, "crop").shape == (16, 16, 3)
    pictures = stored._replace(paths=paths[3:1:-1]).pictures(slice(0, 2), 32, "crop")
    np.testing.assert_array_equal([picture.pixels for picture in pictures], pixels[[3, 2]])
    with pytest.raises(ValueError, match="other images"):
        stored_beside(file, packed, paths[::-1])
    with pytest.raises(ValueError, match="is not there: put the images back"):
        stored_beside(file_of(tmp_path / "embeddings.parquet", packed), packed, paths)
    packed.touch()
    with pytest.raises(ValueError, match=r"has none as a file, and .*images/none with pixels of them is not there"):
        stored_beside(file_of(tmp_path / "gallery/none/embeddings.parquet", packed), packed, paths)


def test_located__a_task_lies_where_its_graph_says_in_this_clone(tmp_path: Path) -> None:
    file = file_of(tmp_path / "data/gallery/dots/embeddings.parquet", Path("../../images/dots"))
    assert located(file) == tmp_path / "data/images/dots"
    for path in ("my/dots", "/elsewhere"):
        (tmp_path / "params.yaml").write_text(f"paths: {{dots: {path}}}\n")
        assert located(file) == tmp_path / path
        assert located(file_of(tmp_path / "data/e.parquet", Path("/photos"))) == Path("/photos")
