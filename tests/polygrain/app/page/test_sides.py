import shutil
from pathlib import Path

import numpy as np
import pytest

from polygrain import Collection
from polygrain.app.page.sides import Side
from polygrain.collection import asked
from polygrain.collection.embedding import embed, embed_pictures
from polygrain.collection.maker import Maker
from polygrain.collection.postprocessing import comparison


def test_by__says_which_images_are_gone(sides: list[Side], photos: Path) -> None:
    shoes, encoder = sides[1].collection, sides[0].collection.maker
    (photos / "dots/class1/0.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match="1 of the images"):
        shoes.by(encoder)
    shutil.rmtree(photos)
    with pytest.raises(ValueError, match=f"{photos}, where the images of .* is not there"):
        Collection(shoes.file, shoes.maker).by(encoder)


def test_by__as_many_are_alike_and_an_upload_asks_less_their_mean(
    sides: list[Side], fused: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "FEWEST_CENTRED", 24), monkeypatch.setattr(asked, "FEWEST_CENTRED", 24)
    shoes = Collection.of(photos, fused, file=photos.parent / "e.parquet", alike=7)
    model = sides[0].network
    other = Side("encoder", "", shoes.by(Maker(None, model, "other")))
    assert other.collection.facts.alike == 7 and other.start == 0
    square = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    given = embed(model, [photos / path for path in shoes.paths])
    less = embed_pictures(model, [square])[0] - given.mean(0)
    np.testing.assert_allclose(other.embed(square)[0], less / np.linalg.norm(less), atol=1e-5)
