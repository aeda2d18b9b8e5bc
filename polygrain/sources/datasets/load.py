"""Public data sets by name: `load("cub", "data/raw/cub")` reads the published files."""

import os
import re
import shutil
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int

from polygrain.sources.datasets.sets import SETS, Records


@dataclass(frozen=True)
class Dataset:
    """Images of one data set, one entry each, sorted by class and then by path.

    `paths` are below the root given to `load`. `splits` are the published ones (train, test, query, gallery), "" if
    there is no list of them. `pixels` is `image 32 32 3` for CIFAR, whose paths are names only.
    """

    name: str
    paths: list[Path]
    labels: Int[np.ndarray, " image"]
    class_names: list[str]
    splits: np.ndarray
    pixels: np.ndarray | None

    @property
    def is_train(self) -> Bool[np.ndarray, " image"]:
        """The training images: by the data set's own list where that counts, else by class (`mrt_split`)."""
        return self.splits == "train" if SETS[self.name].is_listed else mrt_split(self.labels)


def mrt_split(labels: Int[np.ndarray, " image"]) -> Bool[np.ndarray, " image"]:
    """True for the images of the first half of the classes in label order, rounded up (Grappa, 4.1)."""
    classes = np.unique(labels)
    return np.isin(labels, classes[: (len(classes) + 1) // 2])


def load(name: str, root: str | Path, download: bool = False) -> Dataset:
    """The data set below `root`, in its published layout; `download` fetches it first if it is missing.

    ValueError for an unknown name, and for a data set that is missing, damaged or contradicts itself.
    """
    if name not in SETS:
        raise ValueError(f"unknown data set {name!r}; known: {', '.join(SETS)}")
    root = Path(os.path.normpath(root))
    if download and missing(name, root):
        fetch(name, root)
    if absent := missing(name, root):
        raise ValueError(f"{name}: {root / absent[0]} is missing; get it from {SETS[name].home}")
    try:
        records = SETS[name].read(root)
        splits = np.array(records.splits or [""] * len(records.paths))
        check_records(root, records)
    # The libraries raise a dozen types on damaged files.
    except Exception as error:
        raise ValueError(f"{name}: {root} is not as published ({error}); get it from {SETS[name].home}") from error
    labels = np.array(records.labels, dtype=np.int64)
    order = np.array(sorted(range(len(labels)), key=lambda i: (labels[i], records.paths[i].as_posix())), dtype=np.int64)
    paths = [records.paths[i] for i in order]
    pixels = None if records.pixels is None else records.pixels[order]
    return Dataset(name, paths, labels[order], list(records.class_names), splits[order], pixels)


def missing(name: str, root: Path) -> list[str]:
    """The published files that are not below the root."""
    return [file for file in SETS[name].files if not (root / file).exists()]


def check_records(root: Path, records: Records) -> None:
    """ValueError if listed images are not there; `check_counts` compares how many there are."""
    if records.pixels is not None:
        return
    # By name: a user's link to another disk is fine, a list with `../` is not.
    if outside := [path for path in records.paths if not Path(os.path.normpath(path)).is_relative_to(root)]:
        raise ValueError(f"the listed path {outside[0]} leads outside the folder")
    if gone := [path for path in records.paths if not path.is_file()]:
        raise ValueError(f"{len(gone)} of {len(records.paths)} listed images are missing, the first: {gone[0]}")


def check_counts(dataset: Dataset) -> None:
    """ValueError, with both numbers, if classes or images are not as many as published."""
    expected, is_train = SETS[dataset.name].counts._asdict(), dataset.is_train
    if not expected["train_images"]:  # published as a whole
        is_train = np.zeros(len(is_train), dtype=bool)
    actual: dict[str, int] = {}
    for half, mask in (("train", is_train), ("test", ~is_train)):
        actual |= {f"{half}_classes": len(set(dataset.labels[mask])), f"{half}_images": int(mask.sum())}
    wrong = [
        f"{actual[key]:,} {key.replace('_', ' ')} ({expected[key]:,} in its label files)"
        for key in actual
        if actual[key] != expected[key]
    ]
    if wrong:
        raise ValueError(
            f"{dataset.name} has {', '.join(wrong)}: complete it, or set images.published_counts to false to go on"
        )


def fetch(name: str, root: Path) -> None:
    """Downloads the archives, compares their checksums and unpacks them within the folder.

    ValueError says what to do by hand if the data set may not be fetched, or the network does not answer.
    """
    source = SETS[name]
    if not source.archives:
        raise ValueError(f"{name} cannot be fetched; put {', '.join(source.files)} into {root}, from {source.home}")
    from torchvision.datasets.utils import download_url

    for archive in source.archives:
        folder, file = root / archive.folder, archive.url.rsplit("/", 1)[1]
        try:
            download_url(archive.url, folder, file, archive.md5)
            if re.search(r"\.(zip|tgz|tar\.gz)$", file):
                # Python takes archives of anything at their word where no filter is named; zip knows none.
                shutil.unpack_archive(folder / file, folder, filter=None if file.endswith(".zip") else "data")
                (folder / file).unlink()
        except (OSError, RuntimeError, tarfile.TarError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{name}: {archive.url} could not be fetched ({error}); put it at {folder / file} and unpack it there"
            ) from error
