"""A zip of images as a folder of images, unpacked for as long as it is read."""

import re
import shutil
import stat
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from io import BufferedIOBase
from pathlib import Path, PurePosixPath
from typing import cast

from polygrain.sources import folder
from polygrain.sources.decode import MOST_BYTES
from polygrain.sources.decode import opened as opened_file

TOTAL_BYTES = 512 * 2**30
ENCRYPTED, IN_UTF8 = 1, 2**11  # flags of an entry
UNPACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
NAME_BYTES, PATH_BYTES = 255, 3072  # what Linux takes, less the folder in which a zip is unpacked
REMEDY = "unpack it with 7z and give the folder"
CJK = "\u3005-\u3007\u4e00-\u9fff\uff01-\uff5e"
# Of names without the flag of UTF-8, and the letters that they are then made of.
ALPHABETS = {"utf-8": "^\0-\x7f", "cp932": f"\u3000-\u30ff{CJK}", "euc_kr": "\uac00-\ud7a3", "gb2312": CJK}
ALPHABETS |= {"big5": CJK, "cp866": "\u0400-\u045f", "shift_jis": f"\u3000-\u30ff\uff61-\uff9f{CJK}", "gbk": CJK}


def require_zip(path: Path) -> None:
    """ValueError for a path that is neither a folder nor a zip."""
    if not path.is_file() or not zipfile.is_zipfile(path):
        raise ValueError(
            f"{path} is no zip, and no folder: give a folder or a zip of images, a tar that is not compressed, or a "
            "Parquet file"
        )


def leads_out(name: str) -> bool:
    """Whether the name of an entry or object leads out of the folder that holds it."""
    return name.startswith("/") or ".." in PurePosixPath(name).parts


def refuse(entry: zipfile.ZipInfo) -> str | None:
    """The reason not to unpack an entry; None for a harmless one."""
    if leads_out(entry.filename):
        return "its name leads out of the folder"
    if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "it is a link or a device"
    if entry.flag_bits & ENCRYPTED:
        return "it is encrypted"
    if entry.compress_type not in UNPACKED:
        return f"it is packed by {'Deflate64' if entry.compress_type == 9 else f'method {entry.compress_type}'}"
    name = entry.filename.encode("utf-8", "surrogatepass")
    if max(map(len, name.split(b"/"))) > NAME_BYTES or len(name) > PATH_BYTES:
        return f"its name has {len(name):,} bytes, more than Linux takes: shorten it"
    if entry.file_size > MOST_BYTES:
        return f"it would grow from {entry.compress_size:,} to {entry.file_size:,} bytes"
    return None


def alphabet(names: Iterable[bytes]) -> str:
    """The first alphabet in which the foreign parts of names are its own letters, of more bytes than Latin ones.

    Else zip's own. In a wrong one half a letter may be a backslash.
    """
    parts = {re.sub(rb"\.\w+$", b"", part) for name in names for part in name.split(b"/") if not part.isascii()}
    for known, letters in ALPHABETS.items():
        try:
            text = b"\n".join(sorted(parts)).decode(known)
        except UnicodeDecodeError:
            continue
        own, foreign, latin = (re.findall(f"[{of}]", text) for of in (letters, "^\0-\x7f", "A-Za-z"))
        if known == "utf-8" or (len("".join(own).encode(known)) > len(latin) and len(own) >= 0.9 * len(foreign)):
            return known
    return "cp437"


@contextmanager
def reading(file: Path) -> Iterator[zipfile.ZipFile]:
    """A zip that is read in the block; ValueError where it is damaged."""
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except Exception as error:  # zipfile raises a dozen types on damaged bytes
        if getattr(error, "errno", None):
            raise  # the disk, not the archive
        raise ValueError(f"{file} cannot be unpacked ({error}); download it again, or {REMEDY}") from error


def entries(file: Path) -> tuple[list[zipfile.ZipInfo], dict[str, str]]:
    """The files of a zip to be unpacked, and {path: reason} for hidden ones; ValueError if one may not be unpacked."""
    listed, hidden = [], {}
    with reading(file) as archive:
        infos = archive.infolist()
    plain = [entry for entry in infos if not entry.flag_bits & IN_UTF8 and entry.filename == entry.orig_filename]
    coded = {entry: entry.filename.encode("cp437") for entry in plain}
    known = alphabet(coded.values())
    for entry in infos:
        name = coded[entry].decode(known) if entry in coded else entry.filename
        # Some tools of Windows write backslashes, against the standard.
        entry.filename = name.replace("\\", "/")
        if entry.filename.endswith("/"):
            continue
        if folder.is_hidden(entry.filename) and not leads_out(entry.filename):
            hidden[entry.filename] = "hidden"
        else:
            listed.append(entry)
    refused = [(entry.filename, reason) for entry in listed if (reason := refuse(entry))]
    names = Counter(PurePosixPath(entry.filename) for entry in listed)
    refused += [(str(name), "it is there twice") for name, count in names.items() if count > 1]
    if sum(entry.file_size for entry in listed) > TOTAL_BYTES:
        refused += [("all of it", f"more than {TOTAL_BYTES:,} bytes")]
    if refused:
        raise ValueError(f"{file} is not unpacked: {refused[0][0][:80]!r}, {refused[0][1]}; mend the zip, or {REMEDY}")
    return listed, hidden


def find(path: Path) -> folder.FolderContent:
    """The images of a folder or a zip, by names; ValueError as `folder.arrange`, or for a zip that is not unpacked."""
    if path.exists() and not path.is_dir():
        require_zip(path)
    if not path.is_file():
        return folder.find(path)
    listed, rejected = entries(path)
    paths = [PurePosixPath(entry.filename).as_posix() for entry in listed]
    rejected |= {name: reason for name in paths if (reason := folder.unread(name))}
    return folder.arrange((name for name in paths if name not in rejected), rejected, str(path), is_packed=True)


@contextmanager
def opener(path: Path) -> Iterator[Callable[[str], tuple[int, AbstractContextManager[BufferedIOBase]]]]:
    """A function that gives the size and the bytes of an image of a folder or zip by its name, without unpacking it."""
    if path.is_dir():
        yield lambda name: ((path / name).stat().st_size, opened_file(path / name))
        return
    named = {PurePosixPath(entry.filename).as_posix(): entry for entry in entries(path)[0]}
    with reading(path) as archive:
        yield lambda name: (named[name].file_size, cast(BufferedIOBase, archive.open(named[name])))


def unpack(file: Path, root: Path) -> None:
    """Unpacks all files but hidden ones, each to at most the size that it declares; ValueError before any, or none."""
    listed, _ = entries(file)
    with reading(file) as archive:
        for entry in listed:
            archive.extract(entry, root)


@contextmanager
def opened(path: Path, place: Path) -> Iterator[Path]:
    """The folder itself, or the content of a zip below `place`, a new folder that is removed at the end.

    ValueError for an archive that is damaged, or that has an entry which may not be unpacked.
    """
    if path.is_dir() or not path.exists():
        yield path
        return
    require_zip(path)
    try:
        unpack(path, place)
        yield place
    except ValueError as error:
        # Errors about the content name the new folder, which is gone by then.
        raise ValueError(str(error).replace(str(place), str(path))) from error
    finally:
        shutil.rmtree(place, ignore_errors=True)
