"""What folders, zips and streams of images hold, counted by names and labels."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from polygrain.compute.counted import counted
from polygrain.sources import archive, folder
from polygrain.sources.look import Look, judged, look_at, look_through
from polygrain.sources.streams import place, stream
from polygrain.sources.streams.parquet import holds_embeddings

STREAMS = {".tar": "tars", ".parquet": "parquet"}
Listing = tuple[list[str], dict[str, str]]  # of `folder.walk`
UNSAFE = re.compile(r"['\n]|\$\{")  # it would end a path in a command, or be read as another value


QUERIES = 0.2  # images.queries of a new profile
FEWEST = 50  # choice.criterion.fewest


class Folder(NamedTuple):
    """The images of one task."""

    source: str
    path: Path | str
    classes: dict[str, int]
    """{class name: images}; the one class of unlabelled images is "" """
    left_out: Mapping[str, int] = {}
    """{reason: entries}"""
    labels: str = ""
    """where they are from, in words"""
    files: str = "*"
    """of tars and Parquet files: the pattern of their names"""
    is_estimate: bool = False
    """its numbers are estimates"""
    listing: str | None = None
    """of an object store: what its listing file is to hold"""

    @property
    def train_images(self) -> int:
        """Images that train, about: all but the queries, and all unlabelled ones."""
        return round((1 if "" in self.classes else 1 - QUERIES) * sum(self.classes.values()))

    def unmeasured(self) -> list[str]:
        """What a run cannot measure of so few images, a sentence each."""
        lines, train = [], self.train_images
        if "" not in self.classes and max(self.classes.values()) < 2:
            lines.append("no class has two images, so nothing can be found: the report cannot measure this task")
        if train < FEWEST:
            lines.append(
                f"{counted(train, 'image')} to train on, and the choice needs {FEWEST}: this task does not count in it"
            )
        return lines

    def describe(self) -> str:
        kind = "without labels, so not evaluated"
        if "" not in self.classes:
            classes = counted(len(self.classes), "class", "classes")
            # A fifth of each class is drawn, in whole images, and some files may be duplicates.
            kind = f"of {classes} ({folder.few(list(self.classes))}), about {self.train_images:,} of them to train on"
        images = counted(sum(self.classes.values()), "image")
        return ", ".join(filter(None, [f"{'about ' * self.is_estimate}{images} {kind}", self.labels]))


def examine(given: str) -> Folder:
    """What a folder, a zip, tars or Parquet files (one, a folder or a pattern), or an s3://bucket/prefix holds.

    ValueError where it holds no image, or too few classes for what it is given as.
    """
    if UNSAFE.search(given):
        raise ValueError(f"{given!r} has a quote, a line break or ${{ in it: rename it")
    path = Path(given)
    if "://" in given:
        result = listed(given)
    else:
        listing = folder.walk(path, tracked=True) if path.is_dir() else None
        result = find_stream(path, listing) or found(path, listing)
    if not result.classes:
        raise ValueError(f"{given} holds no image; {folder.reasons(Counter(result.left_out))}")
    if len(result.classes) == 1 and "" not in result.classes and not result.is_estimate:
        raise ValueError(f"{given} holds one class only ({next(iter(result.classes))}): give two, or images without")
    return result


def found(path: Path, listing: Listing | None) -> Folder:
    """What a folder or a zip of images holds, by names alone: of damaged files the stage `images` says so."""
    images, rejected = folder.arrange(*listing, str(path)) if listing else archive.find(path)
    classes = dict(sorted(Counter(images.values()).items()))
    left_out = Counter(folder.kind_of(*entry) for entry in rejected.items())
    return Folder("folder", path, classes, left_out, folder.described(images))


def look(task: Folder) -> Look:
    """A look at the files, its lines with all that a run will leave out."""
    count, path = sum(task.classes.values()), Path(task.path)
    if task.source == "folder":
        seen = look_at(path, archive.find(path).images)
    elif task.source == "remote":
        seen = judged([], count)
    else:
        seen = look_through(stream.find(path, task.source, task.files).entries(), count)
    left_out = Counter(task.left_out) + seen.left_out
    reasons = [folder.reasons(left_out, count + sum(task.left_out.values()))] if left_out else []
    return seen._replace(lines=reasons + seen.lines)


def find_stream(path: Path, listing: Listing | None) -> Folder | None:
    """The tars or Parquet files that a path or a pattern means; None where it means neither.

    `listing`: of a folder, as `folder.walk` gives it. ValueError for a folder that holds images, too, or tars and
    Parquet files that do not go together.
    """
    if path.exists() or not (re.search(r"[*?\[]", path.name) or path.suffix in STREAMS):
        where, pattern = path, "*"
        kind = streamed_by(path, *listing) if listing else STREAMS.get(path.suffix.lower()) if path.is_file() else None
    else:
        where, pattern, kind = path.parent, path.name, STREAMS.get(path.suffix.lower(), "tars")
    if kind is None:
        return None
    return Folder(kind, where, *stream.find(where, kind, pattern).content(), pattern)


def streamed_by(path: Path, images: list[str], others: dict[str, str]) -> str | None:
    """Whether tars or Parquet files in a folder hold its images; files of embeddings, as `polygrain embed` writes them,
    hold none. ValueError for a folder without images whose tars or Parquet files lie deeper.
    """
    streamed = [name for name in others if PurePosixPath(name).suffix.lower() in STREAMS and others[name] != "hidden"]
    files = [path / name for name in streamed if all("=" in part for part in PurePosixPath(name).parts[:-1])]
    files = [file for file in files if not holds_embeddings(file)]
    tars, tables = ({file.stem for file in files if file.suffix.lower() == suffix} for suffix in STREAMS)
    if not files:
        if streamed and not images:
            folders = sorted({str((path / name).parent) for name in streamed})
            which = "the folder" if len(folders) == 1 else "each of the folders, as a task,"
            raise ValueError(f"{path} holds no image, but {streamed[0]}: give {which} {', '.join(folders[:10])}")
        return None
    # Beside each of its tars img2dataset writes a Parquet file of the same name, with no images.
    if images or (tars and not tables <= tars):
        other = "images" if images else "tars"
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
    content = first.content()
    times = whole.place.bytes / max(1, first.place.bytes)
    content = content._replace(classes={name: round(count * times) for name, count in content.classes.items()})
    return Folder("remote", address, *content, is_estimate=times > 1, listing=place.text_of(location))


def task_names(given: Sequence[str]) -> dict[str, str]:
    """A name for each folder, taken from its own, numbered where two would be the same, or like a column of results."""
    tasks: dict[str, str] = {}
    for path in given:
        if path in tasks.values():
            raise ValueError(f"{path} is given twice: give each folder once")
        name = folder.composed(path.rstrip("/").rpartition("/")[2])
        last = re.sub(r"(.*)\.(tar|parquet|zip)$", r"\1", name.lower())
        plain = re.sub(r"[^a-z0-9_]+", "-", last).strip("-_") or "images"
        name, number = plain, 2
        while name in (*tasks, "mean"):
            name, number = f"{plain}-{number}", number + 1
        tasks[name] = path
    return tasks
