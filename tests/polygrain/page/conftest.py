from pathlib import Path

import pytest

from polygrain.digest import digest
from polygrain.embedding import write
from polygrain.gallery import read
from polygrain.listing import find
from polygrain.page.sides import Side, encoder_of, same_images
from stages.core.encoder.model import load


@pytest.fixture
def sides(fused: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Side]:
    """The encoder and the model, over a folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = load(fused)
    write(model, digest(fused), find(photos), tmp_path / "e.parquet")
    gallery, encoder = read(tmp_path / "e.parquet"), encoder_of(model)
    return [
        Side("encoder", "plain", encoder, same_images(gallery, encoder, "plain")),
        Side("model", "fused", model, gallery),
    ]
