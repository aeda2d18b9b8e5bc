"""A zip of images as a folder of images, unpacked for as long as it is read."""

import stat
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from polygrain.sources.decode import MOST_BYTES

TOTAL_BYTES = 512 * 2**30
RATIO = 200  # images hardly shrink: an entry that shrinks more is a bomb


def leads_out(name: str) -> bool:
    """Whether the name of an entry or object leads out of the folder that holds it."""
    return name.startswith("/") or ".." in PurePosixPath(name).parts or "\\" in name or ":" in name


def refuse(entry: zipfile.ZipInfo) -> str | None:
    """The reason not to unpack an entry; None for a harmless one."""
    if leads_out(entry.filename):
        return "its name leads out of the folder"
    if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "it is a link or a device"
    if entry.file_size > MOST_BYTES or entry.file_size > RATIO * max(entry.compress_size, 1024):
        return f"it would grow from {entry.compress_size:,} to {entry.file_size:,} bytes"
    return None


def unpack(file: Path, root: Path) -> None:
    """Unpacks all entries, each to at most the size that it declares; ValueError if one is refused, before any is."""
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            refused = [(entry.filename, reason) for entry in entries if (reason := refuse(entry))]
            names = Counter(entry.filename for entry in entries)
            refused += [(name, "it is there twice") for name, count in names.items() if count > 1]
            if sum(entry.file_size for entry in entries) > TOTAL_BYTES:
                refused += [("all of it", f"more than {TOTAL_BYTES:,} bytes")]
            if not refused:
                archive.extractall(root)
    except Exception as error:  # zipfile raises a dozen types on damaged bytes
        if getattr(error, "errno", None):
            raise  # the disk, not the archive
        raise ValueError(f"{file} cannot be unpacked ({error}); download it again, or give a folder") from error
    if refused:
        raise ValueError(f"{file} was not unpacked: {refused[0][0]!r}, {refused[0][1]}; mend it, or give a folder")


@contextmanager
def opened(path: Path) -> Iterator[Path]:
    """The folder itself, or the content of a zip in a temporary folder that is removed at the end.

    ValueError for an archive that is damaged, or that has an entry which may not be unpacked.
    """
    if path.is_dir() or not path.exists():
        yield path
        return
    if not path.is_file() or not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is neither a folder nor a zip of images: give one of these")
    with tempfile.TemporaryDirectory(prefix="polygrain-") as temporary:
        unpack(path, Path(temporary))
        try:
            yield Path(temporary)
        except ValueError as error:
            # Errors about the content name the temporary folder, which is gone by then.
            raise ValueError(str(error).replace(temporary, str(path))) from error
