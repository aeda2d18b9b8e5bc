"""A zip of images as a folder of images; the archive is taken for hostile until each entry has been looked at."""

import errno
import stat
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

FULL = (errno.ENOSPC, errno.EDQUOT)
ENTRIES = 5_000_000
ENTRY_BYTES = 256 * 2**20
TOTAL_BYTES = 512 * 2**30
RATIO = 200  # images hardly shrink: more than this is a bomb
CHUNK = 2**20


class Refused(ValueError):
    """An archive that is in order, and holds what may not be unpacked."""


def strange(name: str) -> str | None:
    """What is wrong with the name of an entry; None where nothing is."""
    parts = PurePosixPath(name).parts
    if PurePosixPath(name).is_absolute() or ".." in parts or "\\" in name or ":" in name:
        return "its name leads outside the folder"
    if not parts:
        return "it has no name"
    if any(ord(letter) < 32 for letter in name):
        return "its name has a control character"
    return None


def refuse(entry: zipfile.ZipInfo) -> str | None:
    """Why an entry may not be unpacked; None where it may."""
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if reason := strange(entry.filename):
        return reason
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "it is a link or a device"
    if entry.flag_bits & 1:
        return "it is encrypted"
    if entry.file_size > ENTRY_BYTES or entry.file_size > RATIO * max(entry.compress_size, 1024):
        return f"it would grow from {entry.compress_size:,} to {entry.file_size:,} bytes"
    return None


def check(archive: zipfile.ZipFile, file: Path) -> list[zipfile.ZipInfo]:
    """The entries to unpack. ValueError names the first that may not be, a name met twice, or a total too large."""
    entries = [entry for entry in archive.infolist() if not entry.filename.endswith("/")]
    if len(entries) > ENTRIES or sum(entry.file_size for entry in entries) > TOTAL_BYTES:
        raise Refused(f"{file} holds {len(entries):,} entries, or too many bytes: unpack it yourself, if you trust it")
    seen: set[str] = set()
    for entry in entries:
        reason = "it is there twice" if entry.filename in seen else refuse(entry)
        if reason:
            raise Refused(f"{file}: {entry.filename!r} is not unpacked, {reason}; nothing was: mend the archive")
        seen.add(entry.filename)
    return entries


def write(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, root: Path) -> None:
    """Unpacks one entry, and not a byte more than it declares."""
    target = root / entry.filename
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(entry) as source, target.open("xb") as sink:
        while block := source.read(min(CHUNK, entry.file_size - sink.tell() + 1)):
            if sink.tell() + len(block) > entry.file_size:
                raise zipfile.BadZipFile(f"{entry.filename!r} is longer than it declares")
            sink.write(block)


@contextmanager
def opened(path: Path) -> Iterator[Path]:
    """The folder itself, or a zip file's content in a temporary folder that is removed at the end.

    ValueError for an archive that is damaged, or that holds an entry which may not be unpacked: then none is.
    """
    if path.is_dir() or not path.exists():
        yield path
        return
    if not path.is_file() or not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is neither a folder nor a zip of images: give one of these")
    with tempfile.TemporaryDirectory(prefix="polygrain-") as temporary:
        root = Path(temporary)
        try:
            with zipfile.ZipFile(path) as archive:
                for entry in check(archive, path):
                    write(archive, entry, root)
        except Refused:
            raise
        except Exception as error:  # damaged bytes make zipfile raise a dozen kinds
            if getattr(error, "errno", None) in FULL:
                raise  # nothing is wrong with the archive
            raise ValueError(f"{path} cannot be unpacked ({error}); download it again, or give a folder") from error
        try:
            yield root
        except ValueError as error:
            # What is wrong with the content is said of the folder, which is gone by then.
            raise ValueError(str(error).replace(temporary, str(path))) from error
