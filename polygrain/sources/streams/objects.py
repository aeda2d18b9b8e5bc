"""Images below a prefix of an object store, one object each, fetched side by side, some megabytes at a time."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from polygrain.sources import folder
from polygrain.sources.archive import leads_out
from polygrain.sources.decode import MOST_BYTES
from polygrain.sources.streams.entry import Entry
from polygrain.sources.streams.place import File, Location
from polygrain.store.rectangle import Unreadable

FETCHED = 64
FETCHED_BYTES = 64 * 2**20


class StoredObject(NamedTuple):
    """An object of a place by its number, with its class, or the reason to leave it out."""

    number: int
    class_name: str
    refused: str | None


def find(place: Location) -> list[StoredObject]:
    """All objects, taken as files of a folder; ValueError as `folder.arrange`."""
    rejected = {file.name: reason for file in place.files if (reason := refuse(file))}
    paths = [file.name for file in place.files if file.name not in rejected]
    images, rejected = folder.arrange(paths, rejected, place.root)
    return [
        StoredObject(number, images.get(file.name, ""), rejected.get(file.name))
        for number, file in enumerate(place.files)
    ]


def refuse(file: File) -> str | None:
    """The reason not to read an object; None for an image."""
    if leads_out(file.name):
        return "its name leads out of the folder"
    if file.size > MOST_BYTES:
        return f"it has {file.size:,} bytes, at most {MOST_BYTES:,} are read"
    return folder.unread(file.name)


def read(place: Location, skip: int = 0) -> Iterator[Entry]:
    """The entries of all objects from the number `skip` on; ValueError if one has vanished or changed."""
    block: list[StoredObject] = []
    with ThreadPoolExecutor(FETCHED) as pool:
        for image in find(place):
            if image.number < skip:
                continue
            block.append(image)
            if len(block) == FETCHED or sum(place.files[each.number].size for each in block) > FETCHED_BYTES:
                yield from pool.map(lambda each: fetch(place, each), block)
                block = []
        yield from pool.map(lambda each: fetch(place, each), block)


def fetch(place: Location, image: StoredObject) -> Entry:
    """The entry of an object, in memory."""
    file = place.files[image.number]
    content = Unreadable(image.refused) if image.refused else place.content(file)
    return Entry(image.number, 0, file.name, image.class_name if not image.refused else "", content)
