"""Tars as WebDataset lays them: members with the same stem, one behind the other, are an image and its label.

Read on a plain stream from front to back. tarfile takes a header that is damaged, and one that is missing, for the end:
so the end is compared with what an end must be, before the first image and behind the last.
"""

import json
import tarfile
from collections.abc import Iterator
from io import IOBase
from pathlib import PurePosixPath
from typing import NamedTuple

from polygrain.sources.archive import strange
from polygrain.sources.folder import SUFFIXES
from polygrain.sources.streams.entry import ENTRY_BYTES, Entry, label_of
from polygrain.store.square import Unreadable

BLOCK = 512
HEADER_BYTES = 2**20  # of a name or of what else stands before a member
LABEL_BYTES = 2**16
LABELS = (".cls", ".json")
# The keys of a .json file that may hold the label, in the order in which they are asked.
KEYS = ("label", "cls", "class_name", "class")
SAMPLED = 2000
MEND = "make or download it again"


class Guarded:
    """What tarfile reads headers from: it asks for as many bytes as a header says, and gets no more than any needs."""

    def __init__(self, stream: IOBase) -> None:
        self.stream, self.tell, self.seek = stream, stream.tell, stream.seek

    def read(self, count: int) -> bytes:
        if not 0 <= count <= HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {count:,} bytes")
        return self.stream.read(count)


class TarImage(NamedTuple):
    """An image of the sample in hand, unread."""

    name: str
    offset: int
    size: int


def require_end(stream: IOBase, name: str) -> None:
    """ValueError where a tar has not the length or the end of one: it was cut off."""
    length = stream.seek(0, 2)
    stream.seek(max(0, length - BLOCK))
    if length % BLOCK or stream.read(BLOCK) != bytes(BLOCK):
        packed = " (a compressed tar is not read: images hardly shrink)" if not name.endswith(".tar") else ""
        raise ValueError(f"{name} is no whole tar: it has no end{packed}; {MEND}")
    stream.seek(0)


def members(stream: IOBase, name: str) -> Iterator[tarfile.TarInfo]:
    """Every member in turn; ValueError where the tar is damaged or cut off."""
    length = stream.seek(0, 2)
    stream.seek(0)
    last = -1
    try:
        archive = tarfile.open(fileobj=Guarded(stream), mode="r:")  # noqa: SIM115
        while (member := archive.next()) is not None:
            archive.members = []  # it would keep them all
            if member.size < 0 or archive.offset <= last or archive.offset > length:
                raise tarfile.ReadError(f"{member.name[:100]!r} ends outside of it")
            last = archive.offset
            yield member
        stream.seek(archive.offset)
        if stream.read(BLOCK) != bytes(BLOCK):
            raise tarfile.ReadError("a header is missing or damaged")
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        at = f" behind byte {last:,}" if last > 0 else ""
        raise ValueError(f"{name} is damaged or cut off{at} ({error}); {MEND}") from error


def read(stream: IOBase, name: str, number: int, skip: int = 0) -> Iterator[Entry]:
    """The entries of a tar, the file `number` of a stream, without the first `skip`, whose images are not read.

    An image's path is the tar's name and its own. Its label stands in a .cls or .json file of the same stem.
    """
    index = 0

    def entry(path: str, class_name: str, content: bytes | Unreadable) -> Entry:
        return Entry(number, index, f"{name}/{path}", class_name, content)

    for found in samples(stream, name):
        if index >= skip:
            if isinstance(found[1], Unreadable):
                yield entry(found[0], "", found[1])
            else:
                image, label = found[0], found[1]
                stream.seek(image.offset)
                yield entry(image.name, label, stream.read(image.size))
        index += 1


def samples(stream: IOBase, name: str) -> Iterator[tuple[TarImage, str] | tuple[str, Unreadable]]:
    """Every image with its label, unread, or a name and why nothing is read of it."""
    stem, images, label, others = None, [], "", []

    def gathered() -> Iterator[tuple[TarImage, str] | tuple[str, Unreadable]]:
        if not images:
            yield from ((other, Unreadable("not an image")) for other in others)
        for place, image in enumerate(images):
            if isinstance(label, Unreadable):
                yield image.name, label
            elif place:
                yield image.name, Unreadable(f"the second image of the stem that {images[0].name!r} has")
            else:
                yield image, label

    for member in members(stream, name):
        if member.isdir() or PurePosixPath(member.name).name.startswith("."):
            continue
        if reason := refuse(member):
            yield printable(member.name), Unreadable(reason)
            continue
        path = PurePosixPath(member.name)
        beginning, _, _ = path.name.partition(".")
        if stem != (path.parent, beginning):
            yield from gathered()
            stem, images, label, others = (path.parent, beginning), [], "", []
        if path.suffix.lower() in SUFFIXES:
            images.append(TarImage(member.name, member.offset_data, member.size))
        elif path.suffix.lower() in LABELS and not label:
            label = read_label(stream, member, path.suffix.lower())
        else:
            others.append(member.name)
    yield from gathered()


def refuse(member: tarfile.TarInfo) -> str | None:
    """Why a member is not read; None where it is."""
    if reason := strange(member.name):
        return reason
    if printable(member.name) != member.name:
        return "name is not valid UTF-8"
    if not member.isreg() or member.issparse():
        return "it is a link or a device"
    if member.size > ENTRY_BYTES:
        return f"it has {member.size:,} bytes, at most {ENTRY_BYTES:,} are read"
    return None


def printable(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def read_label(stream: IOBase, member: tarfile.TarInfo, suffix: str) -> str | Unreadable:
    """The label that a .cls or .json file holds, "" where it holds none; Unreadable where it cannot be told."""
    if member.size > LABEL_BYTES:
        return Unreadable(f"its label has {member.size:,} bytes")
    stream.seek(member.offset_data)
    try:
        text = stream.read(member.size).decode("utf-8")
        if suffix == ".cls":
            return label_of(text)
        said = json.loads(text)
        found = [said[key] for key in KEYS if said.get(key) is not None] if isinstance(said, dict) else []
        return label_of(found[0] if found else None)
    except Unreadable as reason:
        return reason
    except (ValueError, RecursionError):
        return Unreadable(f"its label, a {suffix} file, cannot be read")


def estimate(stream: IOBase, name: str, size: int) -> int:
    """About how many images a tar of so many bytes holds, from its first ones."""
    count = end = 0
    for found in samples(stream, name):
        if isinstance(found[0], TarImage):
            count, end = count + 1, found[0].offset + found[0].size
        if count == SAMPLED:
            return round(count * size / end)
    return count
