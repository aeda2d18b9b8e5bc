import hashlib
import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from torchvision.datasets import utils

from stages.core import dataset_sources, datasets
from stages.core.dataset_sources import Archive, Source
from tests import layouts


def test_mrt_split__first_half_of_the_classes_rounded_up() -> None:
    labels = np.array([4, 0, 0, 1, 2, 2, 2, 3])
    assert datasets.mrt_split(labels).tolist() == [False, True, True, True, True, True, True, False]
    assert datasets.mrt_split(np.array([5, 7])).tolist() == [True, False]


@pytest.mark.parametrize("name", list(layouts.WRITERS))
def test_load__sorted_by_class_with_a_class_disjoint_half(tmp_path: Path, name: str) -> None:
    layouts.WRITERS[name](tmp_path, 4)
    dataset = datasets.load(name, tmp_path)
    assert dataset.labels.tolist() == sorted(dataset.labels)
    assert all(path.is_file() for path in dataset.paths)
    train, test = (set(dataset.labels[mask]) for mask in (dataset.is_train, ~dataset.is_train))
    assert not train & test and len(train | test) == len(dataset.class_names)
    expected = {"products": 5, "inshop": 3}.get(name, (len(dataset.class_names) + 1) // 2)
    assert len(train) == expected and max(train) < min(test)


def test_counts__are_table_1(tmp_path: Path) -> None:
    six = [datasets.counts(name) for name in ("aircraft", "cars", "cub", "flowers", "food101", "products")]
    assert sum(row["published_train_images"] for row in six) == 133_339
    assert sum(row["published_test_images"] for row in six) == 133_876
    assert sum(row["train_classes"] for row in six) == 11_668 and sum(row["test_classes"] for row in six) == 11_665
    differ = {key for row in six for key in ("train_images", "test_images") if row[key] != row["published_" + key]}
    assert differ == {"train_images", "test_images"}
    assert sum(row["train_images"] for row in six) - 133_339 == 3_919 - 3_870  # Flowers, and nothing else
    assert sum(row["test_images"] for row in six) - 133_876 == 4_270 - 4_319
    assert set(dataset_sources.SOURCES) == {
        line.split(",")[0] for line in datasets.COUNTS.read_text().split("\n")[1:-1]
    }


def test_check_counts__both_numbers(tmp_path: Path) -> None:
    layouts.cub(tmp_path, 2)
    with pytest.raises(
        ValueError, match=r"cub has 2 train classes \(100 published\), 4 train images \(5,864 published\)"
    ):
        datasets.check_counts(datasets.load("cub", tmp_path))
    layouts.eurosat(tmp_path, 2)
    with pytest.raises(ValueError, match=r"eurosat has 4 test classes \(10 published\), 8 test images \(27,000 pub"):
        datasets.check_counts(datasets.load("eurosat", tmp_path))


def test_check_counts__flowers_differ_from_the_printed_halves(tmp_path: Path) -> None:
    layouts.flowers(tmp_path, 3)
    with pytest.raises(ValueError) as error:
        datasets.check_counts(datasets.load("flowers", tmp_path))
    assert "6 train images (3,919 in its label files, 3,870 published)" in str(error.value)
    assert "6 test images (4,270 in its label files, 4,319 published)" in str(error.value)
    assert "2 train classes (51 published)" in str(error.value)


def test_check_counts__pass_where_all_agree(tmp_path: Path, monkeypatch) -> None:
    layouts.cub(tmp_path, 3)
    counts = tmp_path / "counts.csv"
    header = datasets.COUNTS.read_text().split("\n")[0]
    monkeypatch.setattr(datasets, "COUNTS", counts)
    counts.write_text(f"{header}\ncub,2,6,2,6,6,6,here\n")
    datasets.check_counts(datasets.load("cub", tmp_path))
    counts.write_text(f"{header}\ncub,2,6,2,7,6,7,here\n")
    with pytest.raises(ValueError, match=r"cub has 6 test images \(7 published\): complete it"):
        datasets.check_counts(datasets.load("cub", tmp_path))


def test_load__raise_on_unknown_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"unknown data set 'birds'; known: aircraft, cars, cub, .*cifar100"):
        datasets.load("birds", tmp_path)


@pytest.mark.parametrize("name", list(layouts.WRITERS))
def test_load__raise_on_a_missing_annotation_file(tmp_path: Path, name: str) -> None:
    layouts.WRITERS[name](tmp_path, 2)
    lists = [tmp_path / file for file in dataset_sources.SOURCES[name].files]
    for file in lists:
        if file.is_file():
            content = file.read_bytes()
            file.unlink()
            with pytest.raises(ValueError, match=rf"{name}: .*{file.name} is missing; get it from "):
                datasets.load(name, tmp_path)
            file.write_bytes(content)
    assert datasets.load(name, tmp_path)


def test_load__raise_where_labels_and_images_disagree(tmp_path: Path) -> None:
    layouts.dtd(tmp_path, 3)
    (tmp_path / "dtd/dtd/images/banded/banded_0001.jpg").unlink()
    with pytest.raises(ValueError, match=r"1 of 12 listed images are missing, the first: .*banded_0001.jpg"):
        datasets.load("dtd", tmp_path)
    layouts.aircraft(tmp_path, 3)
    variants = tmp_path / "fgvc-aircraft-2013b/data/variants.txt"
    variants.write_text(variants.read_text() + "Zeppelin NT\n")
    with pytest.raises(
        ValueError, match="class list has 5 names, the labels use 4 of them; no image is of 'Zeppelin NT'"
    ):
        datasets.load("aircraft", tmp_path)
    variants.write_text("\n".join(layouts.NAMES["aircraft"][:3]) + "\n")
    with pytest.raises(ValueError, match=r"aircraft: .* is not as published"):
        datasets.load("aircraft", tmp_path)


def test_load__raise_on_a_list_that_leads_outside(tmp_path: Path) -> None:
    layouts.cub(tmp_path / "raw", 2)
    layouts.paint(tmp_path / "secret.jpg", 0, 0, "x")
    file = tmp_path / "raw/CUB_200_2011/images.txt"
    lines = file.read_text().split("\n")
    file.write_text("\n".join(["1 ../../../secret.jpg", *lines[1:]]))
    with pytest.raises(ValueError, match="leads outside the folder"):
        datasets.load("cub", tmp_path / "raw")


@pytest.mark.parametrize("name", ["cars", "flowers"])
def test_load__raise_on_damaged_matlab_files(tmp_path: Path, name: str) -> None:
    layouts.WRITERS[name](tmp_path, 2)
    file = next(tmp_path.rglob("*.mat"))
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(ValueError, match=f"{name}: .* is not as published"):
        datasets.load(name, tmp_path)


def archive(folder: Path, file: Path, member: str | None = None) -> str:
    """Packs the folder's content (and a member of another name); returns the MD5."""
    with tarfile.open(file, "w:gz") as tar:
        for entry in sorted(folder.iterdir()):
            tar.add(entry, entry.name)
        if member:
            tar.addfile(tarfile.TarInfo(member), io.BytesIO())
    return hashlib.md5(file.read_bytes()).hexdigest()


@pytest.fixture
def offer(tmp_path: Path, monkeypatch):
    """Offers tmp_path/cub.tar.gz as the archive of `cub`, behind a download that copies it; or another so."""

    def copy(url, root, filename, md5):
        Path(root).mkdir(parents=True, exist_ok=True)
        (Path(root) / filename).write_bytes((tmp_path / filename).read_bytes())
        if not utils.check_integrity(Path(root) / filename, md5):
            raise RuntimeError("File not found or corrupted.")

    def make(md5: str, name: str = "cub", file: str = "cub.tar.gz") -> None:
        monkeypatch.setattr(utils, "download_url", copy)
        source = dataset_sources.SOURCES[name]
        folder = source.archives[0].folder
        offered = Source(source.home, source.files, (Archive(f"https://example.org/{file}", md5, folder),))
        monkeypatch.setitem(dataset_sources.SOURCES, name, offered)

    return make


def test_load__download_checks_and_unpacks(tmp_path: Path, offer) -> None:
    layouts.cub(tmp_path / "made", 2)
    offer(archive(tmp_path / "made", tmp_path / "cub.tar.gz"))
    assert len(datasets.load("cub", tmp_path / "root", download=True).paths) == 8
    assert not list((tmp_path / "root").glob("*.gz"))
    (tmp_path / "cub.tar.gz").unlink()  # a data set that is there is used as it is
    assert len(datasets.load("cub", tmp_path / "root", download=True).paths) == 8


def test_fetch__refuse_a_wrong_checksum_and_members_outside(tmp_path: Path, offer) -> None:
    layouts.cub(tmp_path / "made", 2)
    md5 = archive(tmp_path / "made", tmp_path / "cub.tar.gz")
    offer(md5[::-1])
    with pytest.raises(ValueError, match=r"cub.tar.gz could not be fetched .*corrupted.*put it at "):
        datasets.load("cub", tmp_path / "root", download=True)
    assert not (tmp_path / "root/CUB_200_2011").exists()
    offer(archive(tmp_path / "made", tmp_path / "cub.tar.gz", "../outside.txt"))
    with pytest.raises(ValueError, match="outside"):
        datasets.load("cub", tmp_path / "root", download=True)
    assert not (tmp_path / "outside.txt").exists()


@pytest.mark.parametrize(("name", "file"), [("products", "Stanford_Online_Products.zip"), ("eurosat", "EuroSAT.zip")])
def test_fetch__no_member_of_a_zip_leaves_the_folder(tmp_path: Path, offer, name: str, file: str) -> None:
    layouts.WRITERS[name](tmp_path / "made", 2)
    inside = tmp_path / "made" / dataset_sources.SOURCES[name].archives[0].folder
    with zipfile.ZipFile(tmp_path / file, "w") as archive:
        for entry in sorted(path for path in inside.rglob("*") if path.is_file()):
            archive.write(entry, entry.relative_to(inside))
        for member in ("../evil.txt", "../../evil.txt", "../../../evil.txt", str(tmp_path / "evil.txt")):
            archive.writestr(member, "evil")
    offer(hashlib.md5((tmp_path / file).read_bytes()).hexdigest(), name, file)
    root = tmp_path / "below/root"
    assert datasets.load(name, root, download=True).paths
    assert all(path.is_relative_to(root) for path in tmp_path.rglob("evil.txt"))
    assert not (tmp_path.parent / "evil.txt").exists()


def test_fetch__says_what_to_put_where_when_it_may_not_fetch(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"inshop cannot be fetched; put Eval/list_eval_partition.txt into .*, from http"
    ):
        datasets.load("inshop", tmp_path, download=True)


def test_main__needs_a_name_and_lists_the_known_ones(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stages.core.datasets", str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "error: give a folder and the names of data sets, which are aircraft, cars, cub, flowers" in done.stderr


def test_main__ends_with_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stages.core.datasets", str(tmp_path), "cars"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "cars cannot be fetched; put stanford_cars/" in done.stderr
