"""Files that are read as streams: in a folder, or below a prefix of an object store, by fsspec.

What lies in an object store is known by a listing, a small file beside params.yaml that DVC follows in its stead: the
address, and a digest of all names, sizes and tags (ETags). Whoever ingests lists again, and refuses what has changed.
Credentials and the endpoint come from the environment, as for every client of the store; none is written anywhere.
"""

import fnmatch
import hashlib
import json
import os
import re
from collections.abc import Iterable
from io import IOBase
from pathlib import Path
from typing import Any, NamedTuple

from polygrain.store.untrusted import read_text

# Bucket and prefix; no user or password before an @, no query behind a question mark.
ADDRESS = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,62}(/[^\x00-\x1f\x7f?#@\\]*)?")
READ_AHEAD = 8 * 2**20


class File(NamedTuple):
    """A file or object by its name below the place; the tag changes with its content."""

    name: str
    size: int
    tag: str


class Location(NamedTuple):
    """Where files lie, and which: `root` is a folder or an address, and `remote` the object store it is in."""

    root: str
    files: list[File]
    remote: Any = None

    def named(self, file: File) -> str:
        return f"{self.root}/{file.name}"

    def open(self, file: File) -> IOBase:
        """The bytes of a file; ValueError where it is gone, or no longer what was listed."""
        where = self.named(file)
        try:
            if self.remote is None:
                return Path(where).open("rb")
            # Only what was read last is kept: going on means reading on.
            stream = self.remote.open(where, block_size=READ_AHEAD, cache_type="readahead")
        except FileNotFoundError as error:
            raise gone(where) from error
        if stream.size != file.size:
            raise ValueError(f"{where} has {stream.size:,} bytes and was listed with {file.size:,}: {CHANGED}")
        return stream

    @property
    def digest(self) -> str:
        """Of all names, sizes and tags."""
        total = hashlib.sha256()
        for file in self.files:
            total.update(f"{file.name}\0{file.size}\0{file.tag}\n".encode())
        return total.hexdigest()

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)


CHANGED = "it changed while it was read; let nobody write there, and start the run again with `polygrain run`"


def gone(where: str) -> ValueError:
    return ValueError(f"{where} was listed and is gone: {CHANGED}")


def local(path: Path, suffix: str, pattern: str = "*") -> Location:
    """One file, or those of a folder with this suffix and names of this pattern, in order of their names.

    ValueError where there is none, or one that is a link out of the folder.
    """
    folder, names = (path.parent, [path.name]) if path.is_file() else (path, [])
    if path.is_dir():
        names = sorted(
            name for name in os.listdir(path) if name.endswith(suffix) and fnmatch.fnmatchcase(name, pattern)
        )
    if not names:
        raise ValueError(
            f"{path} holds no file like {pattern} with the ending {suffix}: give such a file, or a folder of them"
            if path.exists()
            else f"{path} does not exist: give a file that ends in {suffix}, or a folder of them"
        )
    files = []
    for name in names:
        file = folder / name
        if path.is_dir() and not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder)):
            raise ValueError(f"{file}: link leads outside the folder; put the file itself there")
        status = file.stat()
        files.append(File(name, status.st_size, str(status.st_mtime_ns)))
    return Location(str(folder), files)


def require_address(url: str) -> str:
    """The address without a slash at its end; ValueError for anything but a bucket and a prefix."""
    if not ADDRESS.fullmatch(url):
        raise ValueError(
            f"{url.split('@')[-1][:100]!r} is no s3://bucket/prefix: give one without user, password or query; the "
            "credentials are taken from the environment or ~/.aws"
        )
    return url.rstrip("/")


def remote(url: str) -> Location:
    """All objects below a prefix, in order of their names, as they are now; ValueError says why it cannot be listed."""
    url = require_address(url)
    try:
        import s3fs
    except ImportError as error:
        raise ValueError(f"{url} needs s3fs, which is not installed: pip install -e '.[share]'") from error
    store = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
    try:
        found = store.find(url, detail=True)
    except Exception as error:  # the client's own errors are of a dozen kinds
        raise ValueError(f"{url} cannot be listed ({type(error).__name__}: {error})") from error
    below = url.removeprefix("s3://") + "/"
    files = [
        File(name.removeprefix(below), int(info["size"]), str(info.get("ETag", "")).strip('"'))
        for name, info in sorted(found.items())
        if name.startswith(below) and info.get("type") == "file" and not name.endswith("/")
    ]
    if not files:
        raise ValueError(f"{url} holds no object: give a prefix with images, tars or Parquet files below it")
    return Location(url, files, store)


def text_of(place: Location) -> str:
    """What a listing file says of a remote place."""
    said = {"url": place.root, "files": len(place.files), "bytes": place.bytes, "sha256": place.digest}
    return json.dumps(said, indent=1) + "\n"


def address_in(listing: Path) -> str:
    """The address that a listing file names; ValueError where it is none."""
    try:
        url = json.loads(read_text(listing))["url"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{listing} is no listing of an object store ({error}): `polygrain new` writes one") from error
    return require_address(str(url))


def listed(listing: Path) -> Location:
    """The remote place of a listing file; ValueError where it holds something else by now."""
    place = remote(address_in(listing))
    require_unchanged(listing, place)
    return place


def require_unchanged(listing: Path, place: Location) -> None:
    """ValueError where the listing file says anything else than the place that was just listed."""
    if read_text(listing) != text_of(place):
        raise ValueError(
            f"{place.root} is no longer what {listing} says: `polygrain run` lists it anew, and what hangs on it runs "
            "again"
        )


def like(files: Iterable[File], pattern: str) -> list[File]:
    """Those whose name, without what stands before it, is of the pattern."""
    return [file for file in files if fnmatch.fnmatchcase(file.name.rpartition("/")[2], pattern)]
