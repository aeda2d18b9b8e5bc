"""The images that may become a task's rows, in order, with class and split, for every source but streams."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from PIL import Image

from polygrain.sources import folder, installed
from polygrain.sources.datasets import counts, load
from polygrain.sources.decode import Picture, decode_all
from polygrain.store.image_table import share_file
from polygrain.store.reading import read_lines
from polygrain.store.rectangle import Shape, rectangle


class Assignment(NamedTuple):
    """Class number, class name and split of an image."""

    label: int
    class_name: str
    split: str


class Candidates(NamedTuple):
    """Rows by path, in order, and for each a picture or the reason why there is none, in the same order.

    `rejected` is {path: reason} of files that were left out already.
    """

    rows: dict[str, Assignment]
    outcomes: Iterator[Picture | str]
    rejected: dict[str, str]


def assign(class_names: list[str], unseen: bool = False) -> dict[str, Assignment]:
    """The assignment of each class, for sorted names: the first half trains; the class of flat folders is ""."""
    if class_names == [""]:
        if unseen:
            raise ValueError("a flat folder has no labels, so as an unseen task it could not be evaluated")
        return {"": Assignment(-1, "", "train")}
    half = 0 if unseen else (len(class_names) + 1) // 2
    return {name: Assignment(i, name, "train" if i < half else "test") for i, name in enumerate(class_names)}


def by_class(
    classes: dict[str, str],
    unseen: bool,
    outcomes: Callable[[list[str]], Iterator[Picture | str]],
    rejected: dict[str, str],
) -> Candidates:
    """Candidates sorted by class name and path, from {path: class name}."""
    assigned = assign(sorted(set(classes.values())), unseen)
    rows = {path: assigned[classes[path]] for path in sorted(classes, key=lambda path: (classes[path], path))}
    return Candidates(rows, outcomes(list(rows)), rejected)


def in_splits(raw: Path, size: int, shape: Shape = "crop") -> Candidates:
    """`<raw>/train/<class>/<image>` and `<raw>/val/<class>/<image>`, as ImageNet is laid out: split as it says.

    ValueError if the two do not hold the same classes.
    """
    listings = {"train": folder.find(raw / "train"), "test": folder.find(raw / "val")}
    train, test = (set(listing.images.values()) for listing in listings.values())
    if train != test:
        odd = sorted(train ^ test)
        raise ValueError(f"{raw}: {len(odd)} classes are in one of train and val only, the first: {odd[0] or 'none'}")
    labels = {name: i if name else -1 for i, name in enumerate(sorted(train))}
    places = {"train": "train", "test": "val"}
    rows = {
        f"{places[split]}/{path}": Assignment(labels[name], name, split)
        for split, listing in listings.items()
        for path, name in sorted(listing.images.items(), key=lambda item: (item[1], item[0]))
    }
    rejected = {f"{places[s]}/{path}": why for s, listing in listings.items() for path, why in listing.rejected.items()}
    return Candidates(rows, decode_all(raw, list(rows), size, shape), rejected)


def published(raw: Path, source: str, unseen: bool, size: int, check: bool, shape: Shape = "crop") -> Candidates:
    """A public data set with its own order of classes and, if it has them, its own splits (query, gallery)."""
    dataset = load.load(source, raw)
    if check:
        counts.check_counts(dataset)
    if dataset.pixels is None:
        paths = [Path(os.path.relpath(path, raw)).as_posix() for path in dataset.paths]
        outcomes = decode_all(raw, paths, size, shape, blank=True)  # its counts are published
    else:
        paths = [path.as_posix() for path in dataset.paths]
        squares = (rectangle(Image.fromarray(pixels), size, shape) for pixels in dataset.pixels)
        outcomes = (installed.picture(pixels, dataset.pixels.shape[1]) for pixels in squares)
    is_train = dataset.is_train & (not unseen)
    asked = [split if split in ("query", "gallery") else "test" for split in dataset.splits.tolist()]
    splits = ["train" if train else other for train, other in zip(is_train.tolist(), asked, strict=True)]
    names = [dataset.class_names[label] for label in dataset.labels]
    rows = map(Assignment, dataset.labels.tolist(), names, splits)
    return Candidates(dict(zip(paths, rows, strict=True)), outcomes, {})


def read_share(root: Path, share: float, training: Iterable[str]) -> list[str]:
    """The training images that the list of a share beside the images names, a file name a line, in the list's order.

    Such lists are published: SimCLR's 1 % and 10 % of ImageNet. ValueError if the list is missing, or if a line is not
    the name of exactly one training image.
    """
    file = share_file(root, share)
    if not file.is_file():
        raise ValueError(
            f"{file} does not exist, which images.listed_shares asks for with {share:g}: lay the list there, a file's "
            "name a line, or take the share out and the probe draws its own"
        )
    paths: dict[str, list[str]] = {}
    for path in training:
        paths.setdefault(PurePosixPath(path).name, []).append(path)
    lines = read_lines(file, "lay the published list there, in UTF-8, a file's name a line")
    names = [line.strip() for line in lines if line.strip()]
    for name, count in Counter(names).items():
        if count > 1 or len(paths.get(name, ())) != 1:
            raise ValueError(f"{file}: {name[:80]!r} must be there once, and name one of the training images")
    return [paths[name][0] for name in names]
