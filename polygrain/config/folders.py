"""What folders, zips and streams of images hold, counted by names, labels and headers."""

import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from PIL import Image

from polygrain.sources import folder
from polygrain.sources.decode import FORMATS
from polygrain.sources.streams import place, stream
from polygrain.store import embeddings

STREAMS = {".tar": "tars", ".parquet": "parquet"}
UNSAFE = re.compile(r"['\n]|\$\{")  # it would end a path in a command, or be read as another value


Protocol = Literal["classes", "collection"]
QUERIES = 0.2  # images.queries of a new profile


class Folder(NamedTuple):
    """The images of one task."""

    source: str
    path: Path | str
    classes: dict[str, int]
    """{class name: images}; the one class of unlabelled images is "" """
    left_out: int = 0
    files: str = "*"
    """of tars and Parquet files: the pattern of their names"""
    is_estimate: bool = False
    """its numbers are estimates"""
    listing: str | None = None
    """of an object store: what its listing file is to hold"""
    unseen: bool = False
    """evaluated and never trained on"""

    def train_images(self, protocol: Protocol) -> int:
        """Images that train: of the first half of the classes, rounded up; or about all but the queries.

        All unlabelled ones train, and none of an unseen task.
        """
        names = [] if self.unseen else sorted(self.classes)
        if protocol == "collection" and "" not in self.classes:
            return round((1 - QUERIES) * sum(self.classes[name] for name in names))
        return sum(self.classes[name] for name in names[: (len(names) + 1) // 2])

    def describe(self, protocol: Protocol) -> str:
        kind = "unlabelled, so not evaluated" if "" in self.classes else f"{len(self.classes)} classes"
        images = f"{'about ' * self.is_estimate}{sum(self.classes.values())} images ({kind})"
        return f"{images}, {self.train_images(protocol) or 'none'} of them to train on; {self.left_out} files left out"


def examine(given: str, unseen: bool = False) -> Folder:
    """What a folder, a zip, tars or Parquet files (one, a folder or a pattern), or an s3://bucket/prefix holds.

    ValueError where it holds no image, or too few classes for what it is given as.
    """
    if UNSAFE.search(given):
        raise ValueError(f"{given!r} has a quote, a line break or ${{ in it: rename it")
    path = Path(given)
    if "://" in given:
        result = listed(given)
    elif path.suffix == ".zip" and path.is_file():
        result = packed(path)
    elif streamed := find_stream(path):
        result = streamed
    else:
        images, rejected = folder.find(path)
        classes = Counter(name for image, name in images.items() if has_header(path / image))
        result = Folder("folder", path, dict(sorted(classes.items())), len(images) - classes.total() + len(rejected))
    if not result.classes:
        raise ValueError(f"{given} holds no readable image; {result.left_out} files are left out")
    if len(result.classes) == 1 and "" not in result.classes and not result.is_estimate:
        raise ValueError(f"{given} holds one class only ({next(iter(result.classes))}): give two, or images without")
    if unseen and "" in result.classes:
        raise ValueError(f"{given} is unlabelled, and an unseen task is only evaluated: give it with --images")
    return result._replace(unseen=unseen)


def find_stream(path: Path) -> Folder | None:
    """The tars or Parquet files that a path or a pattern means; None where it means neither.

    ValueError for a folder that holds images, too, or tars and Parquet files that do not go together.
    """
    if not path.exists() and (re.search(r"[*?\[]", path.name) or path.suffix in STREAMS):
        where, pattern, kind = path.parent, path.name, STREAMS.get(path.suffix, "tars")
    else:
        where, pattern = path, "*"
        kind = STREAMS.get(path.suffix) if path.is_file() else streamed_by(path) if path.is_dir() else None
    if kind is None:
        return None
    opened = stream.find(where, kind, pattern)
    classes, others = opened.classes()
    return Folder(kind, where, classes, others, pattern)


def streamed_by(path: Path) -> str | None:
    """Whether tars or Parquet files in a folder hold its images; files of embeddings, as `polygrain embed` writes them,
    hold none."""
    files = [file for file in sorted(path.glob("*")) if file.suffix in STREAMS]
    files = [file for file in files if not {"model", "dim", "root"} <= embeddings.metadata(file).keys()]
    tars, tables = ({file.stem for file in files if file.suffix == suffix} for suffix in STREAMS)
    if not files:
        return None
    beside, inside, _ = folder.scan(path, path)
    has_images = beside or any(folder.scan(path, path / name)[0] for name in inside)
    # Beside each of its tars img2dataset writes a Parquet file of the same name, with no images.
    if has_images or (tars and not tables <= tars):
        other = "images" if has_images else "tars"
        raise ValueError(
            f"{path} holds {files[0].name} beside {other}: give '{path}/*{files[0].suffix}' to read such files alone, "
            f"or move them away to read the {other}"
        )
    return STREAMS[".tar" if tars else ".parquet"]


def listed(address: str) -> Folder:
    """What an object store holds; of tars and Parquet files the first is read, and the others taken to be like it."""
    location = place.remote(address)
    whole = stream.of_remote(location)
    first = whole
    if whole.kind != "objects":
        first = whole._replace(place=whole.place._replace(files=whole.place.files[:1]))
    classes, others = first.classes()
    times = whole.place.bytes / max(1, first.place.bytes)
    classes = {name: round(count * times) for name, count in classes.items()}
    return Folder("remote", address, classes, others, is_estimate=times > 1, listing=place.text_of(location))


def packed(path: Path) -> Folder:
    """What a zip holds, by the names in it; whether it may be unpacked the stage `images` sees."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/")]
    except (zipfile.BadZipFile, OSError) as error:
        raise ValueError(f"{path} is no zip ({error}): download it again, or give a folder") from error
    images = [name.split("/") for name in names if Path(name).suffix.lower() in folder.SUFFIXES]
    classes = Counter(parts[0] for parts in images if len(parts) == 2)
    classes = classes or Counter("" for parts in images if len(parts) == 1)
    return Folder("folder", path, dict(sorted(classes.items())), len(names) - classes.total())


def has_header(file: Path) -> bool:
    """Whether the file begins as an image of a known format; a damaged body is only found by the stage `images`."""
    try:
        with warnings.catch_warnings(action="error", category=Image.DecompressionBombWarning):
            Image.open(file, formats=FORMATS).close()
    except Exception:  # damaged bytes make Pillow's readers raise a dozen kinds of errors
        return False
    return True


def task_names(given: Sequence[str]) -> dict[str, str]:
    """A name for each folder, taken from its own, numbered where two would be the same."""
    tasks: dict[str, str] = {}
    for path in given:
        if path in tasks.values():
            raise ValueError(f"{path} is given twice: give each folder once")
        last = re.sub(r"(.*)\.(tar|parquet|zip)$", r"\1", path.rstrip("/").rpartition("/")[2].lower())
        plain = re.sub(r"[^a-z0-9_]+", "-", last).strip("-_") or "images"
        name, number = plain, 2
        while name in tasks:
            name, number = f"{plain}-{number}", number + 1
        tasks[name] = path
    return tasks
