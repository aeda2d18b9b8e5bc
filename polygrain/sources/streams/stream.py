"""A task's images as one stream, from tars, Parquet files or an object store."""

import fnmatch
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from polygrain.sources.streams import objects, parquet, place, tars
from polygrain.sources.streams.entry import Entry
from polygrain.sources.streams.place import Location
from polygrain.store.square import Unreadable

SUFFIX = {"tars": ".tar", "parquet": ".parquet"}


class Stream(NamedTuple):
    """Files of one kind, tars or parquet, or objects that are images."""

    kind: str
    place: Location

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

    def classes(self) -> tuple[dict[str, int], int]:
        """{class name: images}, "" without labels, and the number of other entries; no image is read."""
        classes, others = Counter(), 0
        if self.kind == "objects":
            listed = objects.find(self.place)
            classes.update(image.class_name for image in listed if image.refused is None)
            others = sum(image.refused is not None for image in listed)
        for file in self.place.files if self.kind != "objects" else ():
            with self.place.open(file) as opened:
                if self.kind == "parquet":
                    classes.update(parquet.labels(opened, self.place.named(file)))
                    continue
                for _, _, label in tars.samples(opened, self.place.named(file)):
                    if isinstance(label, Unreadable):
                        others += 1
                    else:
                        classes[label] += 1
        return dict(sorted(classes.items())), others

    def count(self) -> int | None:
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


def find(raw: Path, source: str, pattern: str) -> Stream:
    """The stream of a source: a tar or Parquet file, a folder of them, or the listing of an object store."""
    if source != "remote":
        return Stream(source, place.local(raw, SUFFIX[source], pattern))
    return of_remote(place.listed(raw), pattern)


def of_remote(location: Location, pattern: str = "*") -> Stream:
    """The stream of an object store's place: its tars, else its Parquet files, else its images."""
    files = [file for file in location.files if fnmatch.fnmatchcase(file.name.rpartition("/")[2], pattern)]
    for kind, suffix in SUFFIX.items():
        if some := [file for file in files if file.name.endswith(suffix)]:
            return Stream(kind, location._replace(files=some))
    return Stream("objects", location._replace(files=files))
