"""What folders of images hold, counted by the headers of their files, as the stage `images` will find it.

Tars, Parquet files and object stores are counted by names and labels alone, which the stages' runner does when asked.
"""

import os
import re
import warnings
import zipfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from polygrain.config import profiles

# The same as in stages/core; copied, because nothing here depends on how a stage works. A test compares them.
SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF")
# dvc.yaml hands paths to a shell, and DVC fills in what looks like one of its own variables.
STREAMS = {".tar": "tars", ".parquet": "parquet"}
PATTERN = re.compile(r"[*?\[{]")
UNSAFE = re.compile(r"[\"'`$\\\x00-\x1f\x7f\ud800-\udfff]")


class Folder(NamedTuple):
    """What a folder of images holds, by the headers of its files."""

    path: Path | str
    readable: dict[str, int]
    """{class name: images}; the one class of a flat folder is "" """
    unreadable: int
    others: int
    unseen: bool = False
    """evaluated and never trained on"""
    source: str = "folder"
    files: str = "*"
    """of tars and Parquet files in a folder: the pattern of their names"""
    about: bool = False
    """numbers of images are estimates"""
    listing: str | None = None
    """of an object store: what its listing file is to hold"""

    @property
    def images(self) -> int:
        return sum(self.readable.values())

    @property
    def train_images(self) -> int:
        """Images of the first half of the classes by name, rounded up; all images of a flat folder, none if unseen."""
        if self.unseen:
            return 0
        names = sorted(self.readable)
        return sum(self.readable[name] for name in names[: (len(names) + 1) // 2])

    def describe(self) -> str:
        kind = "unlabelled, so not evaluated" if "" in self.readable else f"{len(self.readable)} classes"
        return (
            f"{'about ' * self.about}{self.images} images ({kind}), {self.train_images or 'none'} of them to train on; "
            f"left out: {self.unreadable} unreadable, {self.others} other entries"
        )


def look(given: Path | str, unseen: bool = False) -> Folder:
    """What a folder, zip, tar or Parquet file, a pattern, or an s3://bucket/prefix holds; ValueError if nothing.

    A folder with tars or Parquet files directly in it is taken for these.
    """
    path = Path(given)
    if UNSAFE.search(str(given)):
        raise ValueError(f"{str(given)!r} has a quote, $, backslash or control character in it: rename the folder")
    if is_address(given):
        return streamed("remote", str(given), "*", unseen)
    if PATTERN.search(path.name):
        return streamed(STREAMS.get(path.suffix, "tars"), str(path.parent), path.name, unseen)
    if path.suffix in STREAMS and path.is_file():
        return streamed(STREAMS[path.suffix], str(path), "*", unseen)
    if path.is_dir():
        for suffix, kind in STREAMS.items():
            if any(path.glob(f"*{suffix}")):
                return streamed(kind, str(path), "*", unseen)
    if path.suffix == ".zip" and path.is_file():
        return packed(path, unseen)
    return look_into(path, unseen)


def is_address(given: Path | str) -> bool:
    return isinstance(given, str) and "://" in given


def streamed(kind: str, where: str, pattern: str, unseen: bool) -> Folder:
    """What a stream holds, as the stages' runner counts it."""
    if "{" in pattern:
        raise ValueError(f"{pattern!r}: braces are not understood, write * or ? instead, as in train-*.tar")
    found = profiles.survey(kind, where, pattern)
    place = where if kind == "remote" else Path(where)
    said = {"source": kind, "files": pattern, "about": found["about"], "listing": found["listing"]}
    return usable(Folder(place, found["classes"], 0, found["others"], unseen, **said), where)


def packed(path: Path, unseen: bool) -> Folder:
    """What a zip holds, by the names in it; whether it may be unpacked `images` sees."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/")]
    except (zipfile.BadZipFile, OSError) as error:
        raise ValueError(f"{path} is no zip ({error}): download it again, or give a folder") from error
    images = [name.split("/") for name in names if Path(name).suffix.lower() in SUFFIXES]
    classes = Counter(parts[0] for parts in images if len(parts) == 2)
    readable = dict(sorted(classes.items())) or {"": sum(len(parts) == 1 for parts in images)}
    return usable(Folder(path, readable, 0, len(names) - sum(readable.values()), unseen), str(path))


def usable(found: Folder, where: str) -> Folder:
    """The same; ValueError where nothing can be made of it."""
    if not found.images:
        raise ValueError(f"{where} holds no image: {found.others} other entries")
    if len(found.readable) == 1 and "" not in found.readable and not found.about:
        (name,) = found.readable
        raise ValueError(
            f"{where} holds one class only ({name}): a labelled task needs two, an unlabelled one no label"
        )
    if found.unseen and "" in found.readable:
        raise ValueError(f"{where} is unlabelled, and an unseen task is only evaluated: give it with --images")
    return found


def look_into(path: Path, unseen: bool = False) -> Folder:
    """Counts `<path>/<class>/<image>`, or `<path>/<image>` where no folder has an image; ValueError if neither.

    One that is unseen must have classes, for it is only evaluated.
    """
    if not path.is_dir():
        raise ValueError(f"{path} {'is not a folder' if path.exists() else 'does not exist'}: give a folder of images")
    beside, folders, others = entries(path, path)
    readable, unreadable = {}, 0
    for folder in folders:
        inside, deeper, rest = entries(path, folder)
        others += rest + len(deeper) + (not inside)
        if inside:
            readable[folder.name] = sum(map(has_header, inside))
            unreadable += len(inside) - readable[folder.name]
    if len(readable) == 1:
        raise ValueError(
            f"{path} holds one class folder only ({next(iter(readable))}) and {len(beside)} images beside it; "
            "a labelled task needs two classes or more, an unlabelled one its images directly in the folder"
        )
    if readable:
        others += len(beside)
    else:
        readable[""] = sum(map(has_header, beside))
        unreadable = len(beside) - readable[""]
    found = Folder(path, readable, unreadable, others, unseen)
    if not found.images:
        raise ValueError(f"{path} holds no readable image: {unreadable} unreadable, {others} other entries")
    if unseen and "" in readable:
        raise ValueError(
            f"{path} is unlabelled, and an unseen folder is only evaluated: give it with --images to train on, or sort "
            "its images into folders, one for each class"
        )
    return found


def entries(root: Path, folder: Path) -> tuple[list[Path], list[Path], int]:
    """Files named like images, folders, and the number of other entries; hidden ones are ignored."""
    seen = [entry for entry in sorted(folder.iterdir()) if not entry.name.startswith(".")]
    # `images` follows no link out of the folder it was given.
    inside = [entry for entry in seen if Path(os.path.realpath(entry)).is_relative_to(os.path.realpath(root))]
    folders = [entry for entry in inside if entry.is_dir()]
    images = [entry for entry in inside if entry.is_file() and entry.suffix.lower() in SUFFIXES]
    return images, folders, len(seen) - len(folders) - len(images)


def has_header(file: Path) -> bool:
    """Whether the file begins as an image of a known format; cheap, so a damaged body is only found by `images`."""
    try:
        with warnings.catch_warnings(action="error", category=Image.DecompressionBombWarning):
            Image.open(file, formats=FORMATS).close()
    except Exception:
        # Damaged bytes make Pillow's readers raise a dozen kinds of errors; each means the same here.
        return False
    return True


def task_names(paths: list[Path | str]) -> dict[str, Path | str]:
    """A name per folder, taken from the folder's own, numbered where two would be the same."""
    tasks: dict[str, Path | str] = {}
    for path in paths:
        if path in tasks.values():
            raise ValueError(f"{path} is given twice: give each folder once")
        last = str(path).rstrip("/").rpartition("/")[2].lower()
        last = next((last.removesuffix(suffix) for suffix in (*STREAMS, ".zip") if last.endswith(suffix)), last)
        plain = re.sub(r"[^a-z0-9_]+", "-", last).strip("-_") or "images"
        name, number = plain, 2
        while name in tasks:
            name, number = f"{plain}-{number}", number + 1
        tasks[name] = path
    return tasks
