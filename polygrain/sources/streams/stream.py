"""A task's images as one stream, whatever they come from: where they lie, how many they are, and each in turn."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from polygrain.sources.streams import objects, parquet, place, tars
from polygrain.sources.streams.entry import Entry
from polygrain.sources.streams.place import Location

SUFFIX = {"tars": ".tar", "parquet": ".parquet"}


class Stream(NamedTuple):
    """Files of one kind, tars or parquet, or objects that are images."""

    kind: str
    place: Location

    def entries(self, file: int = 0, skip: int = 0) -> Iterator[Entry]:
        """Every entry from the one numbered `skip` in this file on; ValueError for what is damaged or gone."""
        if self.kind == "objects":
            yield from objects.read(self.place, file + skip)
            return
        read = tars.read if self.kind == "tars" else parquet.read
        for number in range(file, len(self.place.files)):
            listed = self.place.files[number]
            try:
                with self.place.open(listed) as opened:
                    yield from read(opened, listed.name, number, skip if number == file else 0)
            except FileNotFoundError as error:
                raise place.gone(self.place.named(listed)) from error

    def classes(self) -> tuple[dict[str, int], int]:
        """{class name: images}, "" without labels, by names and labels alone, and the number of other entries."""
        found, others = Counter(), 0
        if self.kind == "objects":
            listed = objects.find(self.place)
            found.update(image.class_name for image in listed if image.refused is None)
            others = sum(image.refused is not None for image in listed)
        for file in self.place.files if self.kind != "objects" else ():
            with self.place.open(file) as opened:
                name = self.place.named(file)
                if self.kind == "parquet":
                    found.update(parquet.labels(opened, name))
                    continue
                for image, label in tars.samples(opened, name):
                    if isinstance(image, tars.TarImage):
                        found[label] += 1
                    else:
                        others += 1
        return dict(sorted(found.items())), others

    def count(self) -> int:
        """How many images there are, about so many of tars; ValueError where a file is cut off, before any is read."""
        if self.kind == "objects":
            return sum(image.refused is None for image in objects.find(self.place))
        rows = 0
        for number, listed in enumerate(self.place.files):
            with self.place.open(listed) as opened:
                name = self.place.named(listed)
                if self.kind == "parquet":
                    rows += parquet.count(opened, name)
                    continue
                tars.require_end(opened, name)
                rows += (
                    0 if number else round(tars.estimate(opened, name, listed.size) * self.place.bytes / listed.size)
                )
        return rows


def find(raw: Path, source: str, pattern: str) -> Stream:
    """The stream of a source: a tar or Parquet file, a folder of them, or the listing of an object store."""
    if source != "remote":
        return Stream(source, place.local(raw, SUFFIX[source], pattern))
    return of_remote(place.listed(raw), pattern)


def of_remote(found: Location, pattern: str = "*") -> Stream:
    """What an object store's place holds: tars where it has one, else Parquet files, else images."""
    files = place.like(found.files, pattern)
    for kind, suffix in SUFFIX.items():
        if some := [file for file in files if file.name.endswith(suffix)]:
            return Stream(kind, found._replace(files=some))
    return Stream("objects", found._replace(files=files))
