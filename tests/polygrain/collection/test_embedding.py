from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from polygrain.collection import embedding
from polygrain.collection.embedding import embed
from polygrain.encoder.model import load


def vectors(file: Path) -> np.ndarray:
    column = pq.read_table(file).column("embedding").combine_chunks()
    return column.flatten().to_numpy().reshape(len(column), -1)


def test_embed__files_and_images_one_by_one(fused: Path, shared_photos: Path) -> None:
    model, files = load(fused), sorted(shared_photos.rglob("*.png"))[:5]
    expected = [model(model.transform(Image.open(file))[None])[0].numpy() for file in files]
    np.testing.assert_allclose(embed(model, files, batch=2), expected, atol=1e-5)
    np.testing.assert_allclose(embed(model, [Image.open(file) for file in files]), expected, atol=1e-5)
    assert embed(model, []).shape == (0, model.dim)
    np.testing.assert_allclose(embed(model, (file for file in files), batch=2), expected, atol=1e-5)
    for one in (files[0], str(files[0]), Image.open(files[0])):
        np.testing.assert_allclose(embed(model, one), expected[:1], atol=1e-5)


def test_embed__one_that_cannot_be_read_is_named_or_left_out(fused: Path, photos: Path) -> None:
    model, files = load(fused), sorted(photos.rglob("*.png"))[:5]
    rows = embed(model, [files[0], *files[3:]])
    for file in files[1:3]:
        file.write_bytes(file.read_bytes()[:-200])
    for images in (files, [Image.open(BytesIO(file.read_bytes())) for file in files]):
        with pytest.raises(ValueError, match=r"truncated.*skip=True"):
            embed(model, images)
        found, left = embed(model, iter(images), batch=2, skip=True)
        np.testing.assert_allclose(found, rows, atol=1e-5)
        assert [*left] == [1, 2] and "truncated" in left[1]
    assert embed(model, [files[0], photos / "gone.png"], skip=True)[1] == {1: "there is no such file"}
    with pytest.raises(ValueError, match="it is a folder: give its images"):
        embed(model, photos)
    with pytest.raises(ValueError, match="it is a ndarray: give a file, or PIL's"):
        embedding.prepared(model, np.zeros((9, 9, 3)))


def test_embed__an_opened_image_is_seen_as_its_file(fused: Path, shared_photos: Path, tmp_path: Path) -> None:
    model, file, shown = load(fused), tmp_path / "a.gif", Image.open(next(shared_photos.rglob("*.png"))).convert("RGB")
    Image.new("RGB", shown.size, "white").save(file, save_all=True, append_images=[shown])
    with Image.open(file) as opened:
        np.testing.assert_array_equal(embed(model, opened), embed(model, file))
    with pytest.raises(ValueError, match="one colour only"):
        embed(model, Image.new("RGB", (64, 64)))
