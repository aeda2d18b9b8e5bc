from pathlib import Path

from PIL import Image

from polygrain.sources.kinds import kind_of
from tests.helpers import layouts
from tests.helpers.layouts import ask


def test_open__one_colour_is_an_image_of_what_is_counted(tmp_path: Path) -> None:
    layouts.eurosat(tmp_path, 1)
    for file in tmp_path.rglob("*.jpg"):
        Image.new("RGB", (9, 9)).save(file)
    pictures = kind_of("eurosat").open(tmp_path, ask(16)).outcomes
    assert {picture.pixels.max() for picture in pictures} == {0}


def test_open__arrays_become_pictures(tmp_path: Path, monkeypatch) -> None:
    layouts.cifar(tmp_path, 1, "10")(monkeypatch)
    result = kind_of("cifar10").open(tmp_path, ask(16))
    pictures = list(result.outcomes)
    assert len(pictures) == len(result.rows) == 60
    assert pictures[0].pixels.shape == (16, 16, 3) and pictures[0].width == 32
    assert {split for label, _, split in result.rows.values() if label < 5} == {"train"}
    assert {split for label, _, split in result.rows.values() if label >= 5} == {"test"}
