from pathlib import Path

import pytest
from starlette.testclient import TestClient

from polygrain import Collection
from polygrain.app.page.app import build
from polygrain.app.page.sides import Side


def both(fused: Path, photos: Path, place: Path) -> list[Side]:
    """The encoder and the model, over a folder of images."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        shoes = Collection.of(photos, fused, file=place / "e.parquet", smooth=False)
        return [Side("encoder", "plain", shoes.by(shoes.maker.encoder())), Side("model", "fused", shoes)]


@pytest.fixture(scope="session")
def shared_sides(fused: Path, shared_photos: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Side]:
    """Sides that no test changes, over `shared_photos`."""
    return both(fused, shared_photos, tmp_path_factory.mktemp("sides"))


@pytest.fixture
def client(shared_sides: list[Side]) -> TestClient:
    return TestClient(build(shared_sides, 0.95))


@pytest.fixture
def sides(fused: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Side]:
    """Sides of the test's own, over `photos`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return both(fused, photos, tmp_path)
