"""Images below a prefix of an object store, one object each, fetched side by side, some megabytes at a time."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath
from typing import NamedTuple

from polygrain.sources.archive import leads_out
from polygrain.sources.decode import MOST_BYTES
from polygrain.sources.folder import SUFFIXES
from polygrain.sources.streams.entry import Entry
from polygrain.sources.streams.place import Location
from polygrain.store.square import Unreadable

FETCHED = 64
FETCHED_BYTES = 64 * 2**20


class StoredObject(NamedTuple):
    """An object of a place by its number, with its class, or the reason to leave it out."""

    number: int
    class_name: str
    refused: str | None


def find(place: Location) -> list[StoredObject]:
    """All objects, taken as files of a folder: `<class>/<image>`, or `<image>` if no folder has one."""
    paths = [PurePosixPath(file.name) for file in place.files]
    labelled = any(len(path.parts) == 2 and path.suffix.lower() in SUFFIXES for path in paths)
    objects = []
    for number, (file, path) in enumerate(zip(place.files, paths, strict=True)):
        depth, refused = len(path.parts), None
        if path.suffix.lower() not in SUFFIXES:
            refused = "not an image"
        elif leads_out(file.name):
            refused = "its name leads out of the folder"
        elif depth > 2:
            refused = "folder within a class folder, which is not read"
        elif labelled and depth == 1:
            refused = "image beside the class folders"
        elif file.size > MOST_BYTES:
            refused = f"it has {file.size:,} bytes, at most {MOST_BYTES:,} are read"
        if not path.name.startswith("."):
            objects.append(StoredObject(number, path.parts[0] if depth == 2 else "", refused))
    return objects


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
