"""Images that lie below a prefix of an object store, an object each: fetched side by side, some megabytes at a time."""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from polygrain.sources.archive import strange
from polygrain.sources.folder import SUFFIXES
from polygrain.sources.streams.entry import ENTRY_BYTES, Entry
from polygrain.sources.streams.place import CHANGED, Location, gone
from polygrain.store.square import Unreadable

FETCHED = 64
FETCHED_BYTES = 64 * 2**20


class StoredObject(NamedTuple):
    """An object of a place by its number, with its class, or why it is left out unread."""

    number: int
    class_name: str
    refused: str | None


def find(place: Location) -> list[StoredObject]:
    """All objects as a folder would be taken: `<class>/<image>`, or `<image>` where no folder has one."""
    depths = [len(PurePosixPath(file.name).parts) for file in place.files]
    images = [PurePosixPath(file.name).suffix.lower() in SUFFIXES for file in place.files]
    labelled = any(image and depth == 2 for image, depth in zip(images, depths, strict=True))
    found = []
    for number, (file, depth, image) in enumerate(zip(place.files, depths, images, strict=True)):
        refused = strange(file.name) or (None if image else "not an image")
        if refused is None and depth > 2:
            refused = "folder within a class folder, which is not read"
        elif refused is None and labelled and depth == 1:
            refused = "image beside the class folders"
        elif refused is None and file.size > ENTRY_BYTES:
            refused = f"it has {file.size:,} bytes, at most {ENTRY_BYTES:,} are read"
        found.append(StoredObject(number, file.name.split("/")[0] if labelled and depth == 2 else "", refused))
    return [image for image in found if not PurePosixPath(place.files[image.number].name).name.startswith(".")]


def read(place: Location, skip: int = 0) -> Iterator[Entry]:
    """The entries of all objects from the number `skip` on; ValueError where one has vanished or changed."""
    block: list[StoredObject] = []
    for image in find(place):
        if image.number < skip:
            continue
        block.append(image)
        if len(block) == FETCHED or sum(place.files[each.number].size for each in block) > FETCHED_BYTES:
            yield from fetch(place, block)
            block = []
    yield from fetch(place, block)


def fetch(place: Location, block: list[StoredObject]) -> Iterator[Entry]:
    """The entries of some objects, all in memory."""
    wanted = {image.number: place.named(place.files[image.number]) for image in block if image.refused is None}
    fetched = place.remote.cat(list(wanted.values()), on_error="return") if wanted else {}
    contents = {key.removeprefix("s3://"): content for key, content in fetched.items()}
    for image in block:
        file = place.files[image.number]
        if image.refused is not None:
            yield Entry(image.number, 0, file.name, "", Unreadable(image.refused))
            continue
        content = contents[wanted[image.number].removeprefix("s3://")]
        if isinstance(content, FileNotFoundError):
            raise gone(place.named(file)) from content
        if isinstance(content, Exception):
            raise ValueError(
                f"{place.named(file)} cannot be read ({content}); start the run again, it goes on"
            ) from content
        if len(content) != file.size:
            raise ValueError(
                f"{place.named(file)} has {len(content):,} bytes and was listed with {file.size:,}: {CHANGED}"
            )
        yield Entry(image.number, 0, file.name, image.class_name, content)
