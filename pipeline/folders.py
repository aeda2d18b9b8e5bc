"""What folders of images hold, counted by the headers of their files, as the stage `images` will find it."""

import os
import re
import warnings
from pathlib import Path
from typing import NamedTuple

from PIL import Image

# The same as in stages/core; copied, because nothing here depends on how a stage works. A test compares them.
SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF")
# dvc.yaml hands paths to a shell, and DVC fills in what looks like one of its own variables.
UNSAFE = re.compile(r"[\"'`$\\\x00-\x1f\x7f\ud800-\udfff]")


class Folder(NamedTuple):
    """What a folder of images holds, by the headers of its files."""

    path: Path
    readable: dict[str, int]
    """{class name: images}; the one class of a flat folder is "" """
    unreadable: int
    others: int
    unseen: bool = False
    """evaluated and never trained on"""

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
            f"{self.images} images ({kind}), {self.train_images or 'none'} of them to train on; "
            f"left out: {self.unreadable} unreadable, {self.others} other entries"
        )


def look(path: Path, unseen: bool = False) -> Folder:
    """Counts `<path>/<class>/<image>`, or `<path>/<image>` where no folder has an image; ValueError if neither.

    One that is unseen must have classes, for it is only evaluated.
    """
    if not path.is_dir():
        raise ValueError(f"{path} {'is not a folder' if path.exists() else 'does not exist'}: give a folder of images")
    if UNSAFE.search(str(path)):
        raise ValueError(f"{str(path)!r} has a quote, $, backslash or control character in it: rename the folder")
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


def task_names(paths: list[Path]) -> dict[str, Path]:
    """A name per folder, taken from the folder's own, numbered where two would be the same."""
    tasks: dict[str, Path] = {}
    for path in paths:
        if path in tasks.values():
            raise ValueError(f"{path} is given twice: give each folder once")
        plain = re.sub(r"[^a-z0-9_]+", "-", path.name.lower()).strip("-_") or "images"
        name, number = plain, 2
        while name in tasks:
            name, number = f"{plain}-{number}", number + 1
        tasks[name] = path
    return tasks
