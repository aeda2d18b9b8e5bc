"""Files that are read as streams, in a folder or below a prefix of an object store.

An object store is known by a listing, a small file beside params.yaml that DVC follows in its stead: the address, and a
digest of all names, sizes and tags (ETags). `images` lists again, and refuses a store that has changed. Credentials and
endpoint come from the environment, as for every client of the store; none is written anywhere.
"""

import fnmatch
import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import IOBase
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

# Bucket and prefix; no user or password before an @, no query after a question mark.
ADDRESS = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,62}(/[^\x00-\x1f\x7f?#@\\]*)?")
READ_AHEAD = 8 * 2**20


class File(NamedTuple):
    """A file or object by its name below the place; the tag changes with its content."""

    name: str
    size: int
    tag: str


class Location(NamedTuple):
    """A folder or an address (`root`), the files in it, and the object store that an address is in."""

    root: str
    files: list[File]
    remote: Any = None

    def named(self, file: File) -> str:
        return f"{self.root}/{file.name}"

    def open(self, file: File) -> IOBase:
        """The bytes of a file, to be read from front to back."""
        with self.reading(file):
            if self.remote is None:
                return Path(self.named(file)).open("rb")
            return self.remote.open(self.named(file), block_size=READ_AHEAD, cache_type="readahead")

    def content(self, file: File) -> bytes:
        """All bytes of an object."""
        with self.reading(file):
            return self.remote.cat_file(self.named(file))  # `cat` would take brackets for a pattern

    @contextmanager
    def reading(self, file: File) -> Iterator[None]:
        """A block that reads the file; ValueError if it cannot be read."""
        try:
            yield
        except Exception as error:  # clients of object stores raise a dozen types
            reason = f"{type(error).__name__}: {error}"
            raise ValueError(
                f"{self.named(file)} cannot be read ({reason}); start the run again, it goes on"
            ) from error

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


def local(path: Path, suffix: str, pattern: str = "*") -> Location:
    """One file, or the files with this suffix and names of this pattern in a folder and its `key=value` ones, sorted.

    ValueError if there is none, or one that is a link out of the folder.
    """
    if path.is_file():
        folder, files = path.parent, [path]
    elif path.is_dir():
        folder, files = path, []
        for place, folders, names in os.walk(path, onerror=stop):
            folders[:] = [name for name in folders if "=" in name]
            files += [Path(place, name) for name in names if name.lower().endswith(suffix)]
        files = [
            file for file in sorted(files) if fnmatch.fnmatchcase(file.name, pattern) and not file.name.startswith(".")
        ]
    else:
        raise ValueError(f"{path} does not exist: give a file that ends in {suffix}, or a folder of them")
    if not files:
        raise ValueError(f"{path} holds no file like {pattern} with the ending {suffix}: give one, or a folder of them")
    for file in files if path.is_dir() else ():
        if not file.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{file}: link leads outside the folder; put the file itself there")
    states = [file.stat() for file in files]
    named = zip((file.relative_to(folder).as_posix() for file in files), states, strict=True)
    described = [File(name, s.st_size, str(s.st_mtime_ns)) for name, s in named]
    return Location(str(folder), described)


def stop(error: OSError) -> NoReturn:
    """Of `os.walk`, which else leaves out a folder that cannot be listed."""
    raise error


def require_address(url: str) -> str:
    """The address without a slash at its end; ValueError for anything but a bucket and a prefix."""
    if not ADDRESS.fullmatch(url):
        raise ValueError(
            f"{url.split('@')[-1][:100]!r} is no s3://bucket/prefix: give one without user, password or query; the "
            "credentials are taken from the environment or ~/.aws"
        )
    return url.rstrip("/")


def remote(url: str) -> Location:
    """All objects below a prefix, sorted by name, as they are now; ValueError if it cannot be listed."""
    url = require_address(url)
    try:
        import s3fs
    except ImportError as error:
        raise ValueError(f"{url} needs s3fs, which is not installed: pip install -e '.[share]'") from error
    store = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
    try:
        objects = store.find(url, detail=True)
    except Exception as error:  # the client raises a dozen types
        raise ValueError(f"{url} cannot be listed ({type(error).__name__}: {error})") from error
    below = url.removeprefix("s3://") + "/"
    files = [
        File(name.removeprefix(below), int(info["size"]), str(info.get("ETag", "")).strip('"'))
        for name, info in sorted(objects.items())
        if name.startswith(below) and info.get("type") == "file" and not name.endswith("/")
    ]
    if not files:
        raise ValueError(f"{url} holds no object: give a prefix with images, tars or Parquet files below it")
    return Location(url, files, store)


def text_of(place: Location) -> str:
    """The content of the listing file of an object store."""
    values = {"url": place.root, "files": len(place.files), "bytes": place.bytes, "sha256": place.digest}
    return json.dumps(values, indent=1) + "\n"


def address_in(listing: Path) -> str:
    """The address in a listing file; ValueError if there is none."""
    try:
        url = json.loads(listing.read_text(encoding="utf-8"))["url"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{listing} is no listing of an object store ({error}): `polygrain new` writes one") from error
    return require_address(str(url))


def listed(listing: Path) -> Location:
    """The object store of a listing file; ValueError if it has changed since."""
    place = remote(address_in(listing))
    require_unchanged(listing, place)
    return place


def require_unchanged(listing: Path, place: Location) -> None:
    """ValueError if the listing file differs from the place that was just listed."""
    if listing.read_text(encoding="utf-8") != text_of(place):
        raise ValueError(
            f"{place.root} no longer agrees with {listing}: `polygrain run` lists it again, and reruns its stages"
        )
