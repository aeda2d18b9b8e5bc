import hashlib
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from torchvision.datasets import utils

from polygrain.sources.datasets import load
from polygrain.sources.datasets.sets import SETS, Archive, Counts
from tests.helpers import layouts


def test_mrt_split__first_half_of_the_classes_rounded_up() -> None:
    labels = np.array([4, 0, 0, 1, 2, 2, 2, 3])
    assert load.mrt_split(labels).tolist() == [False, True, True, True, True, True, True, False]
    assert load.mrt_split(np.array([5, 7])).tolist() == [True, False]


@pytest.mark.parametrize("name", list(layouts.WRITERS))
def test_load__sorted_by_class_with_a_class_disjoint_half(tmp_path: Path, name: str) -> None:
    layouts.WRITERS[name](tmp_path, 4)
    dataset = load.load(name, tmp_path)
    assert dataset.labels.tolist() == sorted(dataset.labels)
    assert sorted(dataset.paths) == sorted(file for file in tmp_path.rglob("*") if file.suffix.lower() == ".jpg")
    assert np.bincount(dataset.labels).tolist() == [4] * len(dataset.class_names)
    if name in ("aircraft", "cars", "cub", "food101", "dtd", "eurosat"):
        assert dataset.class_names == layouts.NAMES[name]  # in the published order
    if name not in ("aircraft", "cars", "flowers"):  # the path says the class
        places = {(path.name.rsplit("_", 1)[0] if name == "pets" else path.parent, label)
                  for path, label in zip(dataset.paths, dataset.labels.tolist(), strict=True)}  # fmt: skip
        assert len(places) == len(dataset.class_names)
    train, test = (set(dataset.labels[mask]) for mask in (dataset.is_train, ~dataset.is_train))
    assert not train & test and len(train | test) == len(dataset.class_names)
    expected = {"products": 5, "inshop": 3}.get(name, (len(dataset.class_names) + 1) // 2)
    assert len(train) == expected and max(train) < min(test)


@pytest.mark.parametrize("name", ["cars", "cub"])
def test_load__raise_on_a_missing_annotation_file(tmp_path: Path, name: str) -> None:
    layouts.WRITERS[name](tmp_path, 2)
    for file in (tmp_path / file for file in SETS[name].files):
        if file.is_file():
            content = file.read_bytes()
            file.unlink()
            with pytest.raises(ValueError, match=rf"{name}: .*{file.name} is missing; get it from "):
                load.load(name, tmp_path)
            file.write_bytes(content)
    assert load.load(name, tmp_path)


def test_load__raise_where_a_listed_image_is_missing(tmp_path: Path) -> None:
    layouts.dtd(tmp_path, 3)
    (tmp_path / "dtd/dtd/images/banded/banded_0001.jpg").unlink()
    with pytest.raises(ValueError, match=r"1 of 12 listed images are missing, the first: .*banded_0001.jpg"):
        load.load("dtd", tmp_path)


def test_load__raise_on_a_list_that_leads_outside(tmp_path: Path) -> None:
    layouts.cub(tmp_path / "raw", 2)
    layouts.paint(tmp_path / "secret.jpg", 0, 0, "x")
    file = tmp_path / "raw/CUB_200_2011/images.txt"
    lines = file.read_text().split("\n")
    file.write_text("\n".join(["1 ../../../secret.jpg", *lines[1:]]))
    with pytest.raises(ValueError, match="leads outside the folder"):
        load.load("cub", tmp_path / "raw")


def test_check_counts__pass_where_all_agree(tmp_path: Path, monkeypatch) -> None:
    layouts.cub(tmp_path, 3)
    monkeypatch.setitem(SETS, "cub", SETS["cub"]._replace(counts=Counts(2, 6, 2, 6)))
    load.check_counts(load.load("cub", tmp_path))
    monkeypatch.setitem(SETS, "cub", SETS["cub"]._replace(counts=Counts(2, 6, 2, 7)))
    with pytest.raises(ValueError, match=r"cub has 6 test images \(7 in its label files\): complete it"):
        load.check_counts(load.load("cub", tmp_path))


def test_load__download_checks_and_unpacks(tmp_path: Path, monkeypatch) -> None:
    layouts.cub(tmp_path / "made", 2)
    file = tmp_path / "cub.tar.gz"
    with tarfile.open(file, "w:gz") as tar:
        tar.add(tmp_path / "made", ".")

    def copy(url, root, filename, md5):
        Path(root).mkdir(parents=True, exist_ok=True)
        shutil.copy(file, root)
        if not utils.check_integrity(Path(root) / filename, md5):
            raise RuntimeError("File not found or corrupted.")

    monkeypatch.setattr(utils, "download_url", copy)
    for md5 in ("0" * 32, hashlib.md5(file.read_bytes()).hexdigest()):
        archive = Archive("https://example.org/cub.tar.gz", md5)
        monkeypatch.setitem(SETS, "cub", SETS["cub"]._replace(archives=(archive,)))
        if md5 == "0" * 32:
            with pytest.raises(ValueError, match=r"cub\.tar\.gz could not be fetched .*corrupted"):
                load.load("cub", tmp_path / "root", download=True)
    assert len(load.load("cub", tmp_path / "root", download=True).paths) == 8
    assert not list((tmp_path / "root").glob("*.gz"))
    file.unlink()  # a data set that is there is used as it is
    assert len(load.load("cub", tmp_path / "root", download=True).paths) == 8
    with pytest.raises(ValueError, match=r"inshop cannot be fetched; put Eval/list_eval_partition.txt into"):
        load.load("inshop", tmp_path, download=True)
