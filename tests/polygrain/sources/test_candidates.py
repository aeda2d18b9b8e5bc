import hashlib
from pathlib import Path

import pytest
from PIL import Image
from torchvision.datasets import CIFAR10

from polygrain.sources import candidates
from tests.helpers import layouts


def test_assign__first_half_rounded_up_trains() -> None:
    assert [*candidates.assign(["a", "b", "c"]).values()] == [(0, "a", "train"), (1, "b", "train"), (2, "c", "test")]
    assert [row.split for row in candidates.assign(list("abcd")).values()] == ["train", "train", "test", "test"]
    assert candidates.assign([""]) == {"": (-1, "", "train")}


def test_assign__unseen_only_tests() -> None:
    assert candidates.assign(["a", "b"], unseen=True) == {"a": (0, "a", "test"), "b": (1, "b", "test")}
    with pytest.raises(ValueError, match="flat folder has no labels"):
        candidates.assign([""], unseen=True)


def test_by_class__sorted_by_class_and_path_with_outcomes_in_that_order() -> None:
    classes = {"b/2": "b", "a/1": "a", "b/1": "b"}
    found = candidates.by_class(classes, False, lambda paths: iter([f"no {path}" for path in paths]), {"x": "y"})
    assert found.rows == {"a/1": (0, "a", "train"), "b/1": (1, "b", "test"), "b/2": (1, "b", "test")}
    assert list(found.rows) == ["a/1", "b/1", "b/2"] and found.rejected == {"x": "y"}
    assert list(found.outcomes) == ["no a/1", "no b/1", "no b/2"]


def test_in_splits__the_same_classes_split_as_the_folders_say(tmp_path: Path) -> None:
    for path in ("train/b/2.png", "train/b/1.png", "train/a/1.png", "val/a/9.png", "val/b/9.png"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(tmp_path / path)
    (tmp_path / "val" / "a" / "notes.txt").write_text("x")
    found = candidates.in_splits(tmp_path, 8, 10**6)
    assert list(found.rows.items()) == [
        ("train/a/1.png", (0, "a", "train")),
        ("train/b/1.png", (1, "b", "train")),
        ("train/b/2.png", (1, "b", "train")),
        ("val/a/9.png", (0, "a", "test")),
        ("val/b/9.png", (1, "b", "test")),
    ]
    assert found.rejected == {"val/a/notes.txt": "not an image"}
    assert [outcome.width for outcome in found.outcomes] == [8] * 5


def test_in_splits__classes_of_one_part_only_are_refused(tmp_path: Path) -> None:
    for path in ("train/a/1.png", "train/b/1.png", "val/a/1.png", "val/c/1.png"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    with pytest.raises(ValueError, match="2 classes are in one of train and val only, the first: b"):
        candidates.in_splits(tmp_path, 8, 10**6)


def test_published__arrays_become_pictures(tmp_path: Path, monkeypatch) -> None:
    written = layouts.cifar(tmp_path, 1, "10")
    sums = {name: hashlib.md5(content).hexdigest() for name, content in written.items()}
    for attribute in ("train_list", "test_list"):
        monkeypatch.setattr(CIFAR10, attribute, [[name, sums[name]] for name, _ in getattr(CIFAR10, attribute)])
    monkeypatch.setattr(CIFAR10, "meta", CIFAR10.meta | {"md5": sums["batches.meta"]})
    found = candidates.published(tmp_path, "cifar10", False, 16, 10**6, check=False)
    pictures = list(found.outcomes)
    assert len(pictures) == len(found.rows) == 60
    assert pictures[0].pixels.shape == (16, 16, 3) and pictures[0].width == 32
    assert {split for label, _, split in found.rows.values() if label < 5} == {"train"}
    assert {split for label, _, split in found.rows.values() if label >= 5} == {"test"}


TRAINING = ["train/a/a_1.jpg", "train/a/a_2.jpg", "train/b/b_1.jpg", "train/b/same.jpg", "train/a/same.jpg"]


@pytest.mark.parametrize(("share", "name"), [(0.01, "1percent.txt"), (0.1, "10percent.txt"), (0.005, "0.5percent.txt")])
def test_read_share__paths_in_the_lists_order(tmp_path: Path, share: float, name: str) -> None:
    (tmp_path / name).write_text("b_1.jpg\n\na_2.jpg \n")
    assert candidates.read_share(tmp_path, share, TRAINING) == ["train/b/b_1.jpg", "train/a/a_2.jpg"]


@pytest.mark.parametrize("text", ["a_1.jpg\nc_1.jpg\n", "same.jpg\n", "a_1.jpg\na_1.jpg\n", "../a_1.jpg\n"])
def test_read_share__a_list_of_other_images_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "1percent.txt").write_text(text)
    with pytest.raises(ValueError, match="one of the training images"):
        candidates.read_share(tmp_path, 0.01, TRAINING)


def test_read_share__a_missing_list_is_named_with_the_value_that_asks_for_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"1percent.txt does not exist, .*listed_shares"):
        candidates.read_share(tmp_path, 0.01, TRAINING)
