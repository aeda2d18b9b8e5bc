import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from torchvision import datasets

from polygrain.sources.datasets import sets
from polygrain.sources.datasets.sets import SETS, SUPER_CLASSES, Records
from tests.helpers import layouts


def test_sets__checksums_are_those_of_torchvision_where_it_has_them() -> None:
    published = {archive.url.rsplit("/", 1)[1]: archive.md5 for s in SETS.values() for archive in s.archives}
    assert published["food-101.tar.gz"] == datasets.Food101._MD5
    assert published["dtd-r1.0.1.tar.gz"] == datasets.DTD._MD5
    assert published["cifar-10-python.tar.gz"] == datasets.CIFAR10.tgz_md5
    assert published["cifar-100-python.tar.gz"] == datasets.CIFAR100.tgz_md5
    for file, md5 in datasets.Flowers102._file_dict.values():
        assert published[file] == md5
    for url, md5 in datasets.OxfordIIITPet._RESOURCES:
        assert published[url.rsplit("/", 1)[1]] == md5


def test_counts__are_table_1() -> None:
    six = [SETS[name].counts for name in ("aircraft", "cars", "cub", "flowers", "food101", "products")]
    published = [row._asdict() | row.printed for row in six]
    assert sum(row["train_images"] for row in published) == 133_339
    assert sum(row["test_images"] for row in published) == 133_876
    assert sum(row.train_classes for row in six) == 11_668 and sum(row.test_classes for row in six) == 11_665
    # Flowers, and nothing else, differ.
    assert [(row.train_images, row.test_images) for row in six if row.printed] == [(3_919, 4_270)]


def test_aircraft__classes_by_name_whatever_the_order_of_their_list(tmp_path: Path) -> None:
    layouts.aircraft(tmp_path, 3)
    variants = tmp_path / "fgvc-aircraft-2013b/data/variants.txt"
    variants.write_text("".join(f"{layouts.NAMES['aircraft'][i]}\n" for i in (2, 0, 3, 1)))
    records = SETS["aircraft"].read(tmp_path)
    assert records.class_names == layouts.NAMES["aircraft"]
    assert [int(path.stem) // 1000 for path in records.paths] == records.labels


def test_flowers__classes_by_name_not_by_number(tmp_path: Path) -> None:
    layouts.flowers(tmp_path, 3)
    records = SETS["flowers"].read(tmp_path)
    assert records.class_names == sorted(layouts.NAMES["flowers"]) != layouts.NAMES["flowers"]
    first = [path.name for path, label in zip(records.paths, records.labels, strict=True) if label == 0]
    assert sorted(first) == [f"image_{i:05d}.jpg" for i in (7, 8, 9)]  # canterbury bells, the third class by number


def test_products_and_inshop__keep_their_published_splits(tmp_path: Path) -> None:
    layouts.products(tmp_path / "sop", 2)
    records = SETS["products"].read(tmp_path / "sop")
    train = {label for label, split in zip(records.labels, records.splits, strict=True) if split == "train"}
    assert train == {0, 1, 2, 3, 4} and set(records.splits) == {"train", "test"}
    layouts.inshop(tmp_path / "inshop", 4)
    records = SETS["inshop"].read(tmp_path / "inshop")
    assert Counter(records.splits) == {"train": 12, "query": 4, "gallery": 4}
    assert records.class_names[0] == "id_00000001"


@pytest.mark.parametrize("version", ["10", "100"])
def test_cifar__arrays_with_names(tmp_path: Path, monkeypatch, version: str) -> None:
    publish = layouts.cifar(tmp_path, 1, version)
    with pytest.raises(RuntimeError, match="not found or corrupted"):  # no pickle is opened that is not the published
        SETS[f"cifar{version}"].read(tmp_path)
    publish(monkeypatch)
    records = SETS[f"cifar{version}"].read(tmp_path)
    batches = 6 if version == "10" else 2
    assert records.pixels.shape == (batches * int(version), 32, 32, 3) and len(records.paths) == len(records.pixels)
    assert records.splits.count("test") == int(version)
    assert records.class_names[:2] == (["class 0", "class 1"] if version == "10" else ["apple", "aquarium_fish"])
    assert np.bincount(records.labels).tolist() == [batches] * int(version)


def test_cifar100_super__three_classes_of_each_train_and_two_are_tested(tmp_path: Path, monkeypatch) -> None:
    with SUPER_CLASSES.open() as lines:
        above = {name: row["super_class"] for row in csv.DictReader(lines) for name in row["classes"].split()}
    names = sorted(above)
    pixels = np.arange(200, dtype=np.uint8).reshape(-1, 1, 1, 1)
    paths = [Path(str(i)) for i in range(200)]
    whole = Records(paths, list(range(100)) * 2, names, ["train"] * 100 + ["test"] * 100, pixels)
    monkeypatch.setattr(sets, "cifar", lambda root, version: whole)
    records = SETS["cifar100_super"].read(tmp_path)
    assert len(records.class_names) == 20 and np.bincount(records.labels).tolist() == [10] * 20
    assert np.array_equal(records.pixels, pixels) and records.splits.count("train") == 2 * 60
    of = {names[i]: (records.class_names[records.labels[i]], records.splits[i]) for i in range(100)}
    assert of["beaver"] == ("aquatic_mammals", "train") and of["whale"] == ("aquatic_mammals", "test")
    assert [name for name in names if of[name] == ("trees", "test")] == ["pine_tree", "willow_tree"]
