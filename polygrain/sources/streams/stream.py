"""A task's images as one stream, from tars, Parquet files or an object store."""

import fnmatch
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from polygrain.sources import folder
from polygrain.sources.streams import objects, parquet, place, tars
from polygrain.sources.streams.entry import Entry
from polygrain.sources.streams.place import Location
from polygrain.store.rectangle import Unreadable

SUFFIX = {"tars": ".tar", "parquet": ".parquet"}
FEW = 10  # labels without an image are an error above one in this number of images


class Content(NamedTuple):
    """{class name: images}, "" without labels; {reason: entries left out}; where the labels are from, in words."""

    classes: dict[str, int]
    left_out: Counter[str]
    labels: str = ""


class Stream(NamedTuple):
    """Files of one kind, tars or parquet, or objects that are images; `others` of a folder are left out."""

    kind: str
    place: Location
    others: Mapping[str, str] = MappingProxyType({})

    def entries(self, file: int = 0, skip: int = 0) -> Iterator[Entry]:
        """Every entry from the one numbered `skip` of this file on; ValueError for a damaged file."""
        if self.kind == "objects":
            yield from objects.read(self.place, file + skip)
            return
        read = tars.read if self.kind == "tars" else parquet.read
        for number in range(file, len(self.place.files)):
            listed = self.place.files[number]
            with self.place.open(listed) as opened:
                yield from read(opened, listed.name, number, skip if number == file else 0)

    def content(self) -> Content:
        """The content as a run will find it, but for damaged images and copies; no image is read."""
        left_out, classes = Counter(folder.kind_of(*other) for other in self.others.items()), Counter[str]()
        first: str | None = None
        for path, found in self.labels():
            if isinstance(found, Unreadable):
                left_out[folder.kind_of(path, str(found))] += 1
            elif reason := unlike(found, first):
                left_out[reason] += 1
            else:
                first = found
                classes[found] += 1
        files = self.place.files
        require_labels(classes, left_out, self.place.named(files[0]) if len(files) == 1 else self.place.root)
        described = ""
        if self.kind == "tars" and classes.keys() == {""}:
            described = (
                "no label: no .cls, and no .json with one, lies beside an image (folders in a tar are no classes)"
            )
        if self.kind == "objects":
            images = {files[each.number].name: each.class_name for each in objects.find(self.place) if not each.refused}
            described = folder.described(images)
        if self.kind == "parquet":
            with self.place.open(files[0]) as opened:
                described = parquet.described(opened, self.place.named(files[0]), files[0].name)
        return Content(dict(sorted(classes.items())), left_out, described)

    def labels(self) -> Iterator[tuple[str, str | Unreadable]]:
        """Each entry with its class, "" without, or why it is left out; no image is read, and rows have no names."""
        if self.kind == "objects":
            for image in objects.find(self.place):
                name = self.place.files[image.number].name
                yield name, Unreadable(image.refused) if image.refused else image.class_name
        for file in self.place.files if self.kind != "objects" else ():
            with self.place.open(file) as opened:
                if self.kind == "parquet":
                    yield from (("", label) for label in parquet.labels(opened, self.place.named(file), file.name))
                else:
                    yield from ((path, label) for path, _, label in tars.samples(opened, self.place.named(file)))

    def total(self) -> int | None:
        """The number of images; None for tars, which do not say it."""
        if self.kind == "objects":
            return sum(image.refused is None for image in objects.find(self.place))
        if self.kind == "tars":
            return None
        rows = 0
        for file in self.place.files:
            with self.place.open(file) as opened:
                rows += parquet.count(opened, self.place.named(file))
        return rows


def unlike(label: str, first: str | None) -> str | None:
    """Why an image of this label is left out of a stream whose first image has another; None where it is not."""
    if first is None or bool(first) == bool(label):
        return None
    return f"it has {'no' if first else 'a'} label, unlike the first image"


def require_labels(classes: Mapping[str, int], left_out: Mapping[str, int], where: str) -> None:
    """ValueError where many labels of tars do not lie beside their images."""
    orphans, images = left_out.get(tars.ORPHAN, 0), sum(classes.values())
    if orphans * FEW > max(images, FEW):
        raise ValueError(
            f"{where}: {orphans} labels do not lie beside their images ({images} images): sort the files in it, as "
            "`tar --sort=name -cf sorted.tar FOLDER` does"
        )


def find(raw: Path, source: str, pattern: str) -> Stream:
    """The stream of tars or Parquet files: of one, or of a folder of them."""
    location = place.local(raw, SUFFIX[source], pattern)
    if raw.is_dir() and pattern == "*":
        files = [file for file in location.files if not parquet.holds_embeddings(raw / file.name)]
        location = location._replace(files=files)
        own = {file.name for file in location.files}
        images, rejected = folder.walk(raw)
        beside = [path for path in (*images, *rejected) if path not in own]
        others = {path: "hidden" if rejected.get(path) == "hidden" else f"beside the {source}" for path in beside}
        return Stream(source, location, others)
    return Stream(source, location)


def of_remote(location: Location, pattern: str = "*") -> Stream:
    """The stream of an object store's place: its tars, else its Parquet files, else its images."""
    files = [file for file in location.files if fnmatch.fnmatchcase(file.name.rpartition("/")[2], pattern)]
    for kind, suffix in SUFFIX.items():
        some = [file for file in files if file.name.lower().endswith(suffix) and not folder.is_hidden(file.name)]
        if some:
            own = {file.name for file in some}
            others = {file.name: f"beside the {kind}" for file in files if file.name not in own}
            return Stream(kind, location._replace(files=some), others)
    return Stream("objects", location._replace(files=files))
