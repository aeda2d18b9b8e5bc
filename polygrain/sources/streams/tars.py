"""Tars as WebDataset writes them: consecutive members with the same stem are an image and its label.

tarfile takes a damaged header, and zeros between members, for the end. So after the end only zeros may follow.
"""

import json
import posixpath
import tarfile
from collections.abc import Iterable, Iterator
from io import IOBase
from itertools import groupby
from pathlib import PurePosixPath

from polygrain.sources.archive import leads_out
from polygrain.sources.decode import MOST_BYTES
from polygrain.sources.folder import SUFFIXES, is_hidden, printable
from polygrain.sources.streams.entry import NAMES, Entry, label_of
from polygrain.store.rectangle import Unreadable

READ = 2**20
LINKED = 2**18  # names of members held in memory, for later hard links
LABEL_BYTES = 2**16
LABELS = (".cls", ".json")
ORPHAN = "a label without an image beside it"

Sample = tuple[str, tarfile.TarInfo, str | Unreadable]
"""The path of an image, its member, and its label or the reason to leave it out."""


def members(stream: IOBase, name: str) -> Iterator[tarfile.TarInfo]:
    """Every member in turn; ValueError names the tar, and the member after which it is damaged or cut off."""
    last, end = "its beginning", 0
    places: dict[str, tuple[int, int]] = {}
    stream.seek(0)
    try:
        archive = tarfile.open(fileobj=stream, mode="r:", errorlevel=2, encoding="utf-8")  # noqa: SIM115
        while (member := archive.next()) is not None:
            archive.members = []  # type: ignore[attr-defined]  # it would collect them all
            if member.size < 0 or archive.offset <= end:
                raise tarfile.ReadError("a member has a negative size")
            last, end = member.name, archive.offset
            yield followed(member, places)
        require_zeros(stream, archive.offset)
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{name} is damaged or cut off after {last[:200]!r} ({error}): make or download it again; a compressed tar "
            "is not read"
        ) from error


def followed(member: tarfile.TarInfo, places: dict[str, tuple[int, int]]) -> tarfile.TarInfo:
    """A member, a link as the earlier file that it leads to; `places` are the offset and size of each by name."""
    start = posixpath.dirname(member.name) if member.issym() else ""  # a hard link starts at the tar's root
    target = posixpath.normpath(posixpath.join(start, member.linkname))
    place = places.get(target) if member.islnk() or member.issym() else None
    if place:
        member.type, (member.offset_data, member.size) = tarfile.REGTYPE, place
    if member.isreg() and not member.issparse() and len(places) < LINKED:
        places[posixpath.normpath(member.name)] = member.offset_data, member.size
    return member


def require_zeros(stream: IOBase, start: int) -> None:
    """ReadError unless a block of zeros, and nothing but zeros, stands at the end of a tar."""
    stream.seek(start)
    content = stream.read(tarfile.BLOCKSIZE)
    if content != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError("a header is damaged, or the end is missing")
    while content := stream.read(READ):
        if content.strip(b"\0"):
            raise tarfile.ReadError("something follows its end")


def samples(stream: IOBase, name: str) -> Iterator[Sample]:
    """Every image with its label, unread, and every other file with the reason to leave it out, but for hidden ones.

    macOS lays a hidden one before each file, which parts no image from its label.
    """

    def stem(member: tarfile.TarInfo) -> tuple[PurePosixPath, str]:
        path = PurePosixPath(member.name)
        return path.parent, path.name.partition(".")[0]

    files = (member for member in members(stream, name) if not member.isdir())
    visible = (member for member in files if leads_out(member.name) or not is_hidden(member.name))
    for _, group in groupby(visible, stem):
        yield from sample(stream, group)


def sample(stream: IOBase, group: Iterable[tarfile.TarInfo]) -> Iterator[Sample]:
    """The images of one stem with their common label: one image, or others to be left out beside it."""
    images, labels, others = [], [], []
    label: str | Unreadable = ""
    for member in group:
        suffix = PurePosixPath(member.name).suffix.lower()
        if reason := refuse(member):
            yield printable(member.name), member, Unreadable(reason)
        elif suffix in SUFFIXES:
            images.append(member)
        elif suffix in LABELS and not label:
            label = read_label(stream, member, suffix)
            labels.append(member)
        else:
            others.append(member)
    for image in images[:1]:
        yield image.name, image, label
    for image in images[1:]:
        yield image.name, image, Unreadable(f"the second image of the stem that {images[0].name!r} has")
    yield from ((orphan.name, orphan, Unreadable(ORPHAN)) for orphan in labels if not images)
    yield from ((other.name, other, Unreadable("not an image")) for other in others)


def read(stream: IOBase, name: str, number: int, skip: int = 0) -> Iterator[Entry]:
    """The entries of a tar, the file `number` of a stream, without the first `skip`, which are not read.

    An image's path is the tar's name and its own.
    """
    for index, (path, member, label) in enumerate(samples(stream, name)):
        if index < skip:
            continue
        if isinstance(label, Unreadable):
            yield Entry(number, index, f"{name}/{path}", "", label)
        else:
            stream.seek(member.offset_data)
            yield Entry(number, index, f"{name}/{path}", label, stream.read(member.size))


def refuse(member: tarfile.TarInfo) -> str | None:
    """The reason not to read a member; None for a harmless one."""
    if leads_out(member.name):
        return "its name leads out of the folder"
    if printable(member.name) != member.name:
        return "name is not valid UTF-8"
    if not member.isreg() or member.issparse():
        return "it is a link or a device"
    if member.size > MOST_BYTES:
        return f"it has {member.size:,} bytes, at most {MOST_BYTES:,} are read"
    return None


def read_label(stream: IOBase, member: tarfile.TarInfo, suffix: str) -> str | Unreadable:
    """The label in a .cls or .json file, "" if it holds none; Unreadable if it cannot be read."""
    stream.seek(member.offset_data)
    try:
        text = stream.read(min(member.size, LABEL_BYTES)).decode("utf-8-sig")
        if suffix == ".cls":
            return label_of(text)
        record = json.loads(text)
        values = [record[key] for key in NAMES if record.get(key) is not None] if isinstance(record, dict) else []
        return label_of(values[0] if values else None)
    except Unreadable as reason:
        return reason
    except (ValueError, RecursionError):
        return Unreadable(f"its label, a {suffix} file, cannot be read")
