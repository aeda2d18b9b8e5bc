from pathlib import Path

import pytest

from polygrain.app.page.sides import Side, encoder_of, same_images
from polygrain.collection.collection import read
from polygrain.collection.embedding import write
from polygrain.collection.listing import find
from polygrain.encoder.digest import digest
from polygrain.encoder.model import load


def both(fused: Path, photos: Path, place: Path) -> list[Side]:
    """The encoder and the model, over a folder of images."""
    model = load(fused)
    write(model, digest(fused), find(photos), place / "e.parquet")
    gallery, encoder = read(place / "e.parquet", smooth=False), encoder_of(model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        others = same_images(gallery, encoder, "plain", smooth=False)
        return [
            Side("encoder", "plain", encoder, *others),
            Side("model", "fused", model, gallery, place / "e.parquet"),
        ]


@pytest.fixture(scope="session")
def shared_sides(fused: Path, shared_photos: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Side]:
    """Sides that no test changes, over `shared_photos`."""
    return both(fused, shared_photos, tmp_path_factory.mktemp("sides"))


@pytest.fixture
def sides(fused: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Side]:
    """Sides of the test's own, over `photos`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return both(fused, photos, tmp_path)
