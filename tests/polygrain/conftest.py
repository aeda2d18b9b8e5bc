import shutil
from pathlib import Path

import pytest

from polygrain.encoder.model import Model, load
from tests.helpers.photos import write_fused, write_photos


@pytest.fixture(scope="session")
def fused(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder that no test changes."""
    return write_fused(tmp_path_factory.mktemp("model") / "fused")


@pytest.fixture(scope="session")
def model(fused: Path) -> Model:
    """The model in that folder, which no test changes either."""
    return load(fused)


@pytest.fixture(scope="session")
def shared_photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 24 images that no test changes."""
    return write_photos(tmp_path_factory.mktemp("photos") / "photos")


@pytest.fixture
def photos(tmp_path: Path, shared_photos: Path) -> Path:
    return Path(shutil.copytree(shared_photos, tmp_path / "photos"))
