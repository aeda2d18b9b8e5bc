"""The images of a folder, zip or object store, by their names: `<class>/.../<image>` (labelled) or `<image>` (flat)."""

import errno
import mimetypes
import os
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

USUAL = (".jpg", ".jpeg", ".jfif", ".png", ".webp", ".heic", ".heif", ".hif", ".avif", ".tif", ".tiff", ".bmp", ".gif")
SUFFIXES = (*USUAL, ".jp2", ".j2k", ".ppm", ".pgm", ".pbm", ".pnm")
# Of names that say nothing, the first bytes decide; these are copies and previews of others.
BEGINNINGS = re.compile(rb"\xff\xd8\xff|\x89PNG\r\n\x1a\n|GIF8[79]a|RIFF....WEBP|....ftyp(hei[cx]|avif)", re.DOTALL)
COPIES = {".bak", ".old", ".orig", ".part", ".thm", ".tmp"}
# Folders that a system lays beside images: previews, deleted files, snapshots. Hidden ones have a dot before them.
SYSTEM = {"__macosx", "@eadir", "@__thumb", "@tmp", "temporary items", "system volume information"}
SYSTEM |= {"#recycle", "@recycle", "$recycle.bin", "recycler", "recycled", "trashbox", "network trash folder"}
SYSTEM |= {"#snapshot", "~snapshot", "@recently-snapshot", "found.000", "lost+found"}
SPLIT = "train(ing)?|val(id(ation)?)?|test(ing)?|dev|eval(uation)?|h[eo]ld[ _-]?out|query|gallery|unlabell?ed|images?"
NO_CLASS = re.compile(rf"({SPLIT})([ _.-]?({SPLIT}|set|split|data|\d+))*|imgs?|jpegimages", re.IGNORECASE)
NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES)  # of a link; the machine's errors are others
NO_IMAGE = "not an image"
NAMES_SHOWN, REASONS = 3, 8
known_types = cache(mimetypes.MimeTypes)  # Python's own: those of the machine differ


class FolderContent(NamedTuple):
    """Image files as {path below the root: class name, "" if flat}, and {path: reason} for all that is left out."""

    images: dict[str, str]
    rejected: dict[str, str]


def find(root: Path) -> FolderContent:
    """The images below `root` by name; nothing is opened, links out of the root are left out.

    ValueError for a missing root, and as `arrange`.
    """
    if not root.is_dir():
        raise ValueError(f"{root} {'is not a folder' if root.exists() else 'does not exist'}: give a folder of images")
    return arrange(*walk(root), str(root))


def arrange(paths: Iterable[str], rejected: dict[str, str], where: str, is_packed: bool = False) -> FolderContent:
    """The classes of images by their paths alone, as `classed`.

    An image in a folder makes the task labelled: then images beside the class folders join the rejected. ValueError for
    no image at all, and for a single class.
    """
    images = classed(paths, is_packed)
    beside = [path for path, name in images.items() if not name]
    if beside and len(beside) < len(images):
        rejected = rejected | dict.fromkeys(beside, "image beside the class folders")
        images = {path: name for path, name in images.items() if name}
    if not images:
        raise ValueError(f"{where} holds no image ({', '.join(SUFFIXES)}); {summary(rejected)}")
    if len(names := {*images.values()}) == 1 and "" not in names:
        raise ValueError(
            f"{where} holds one class folder only ({names.pop()}, {len(images)} images) and {len(beside)} images "
            "beside it; a labelled task needs two classes or more, an unlabelled one its images directly in the folder"
        )
    return FolderContent(images, rejected)


def classed(paths: Iterable[str], is_packed: bool = False) -> dict[str, str]:
    """{path: class} in order of paths: the first folder, however deep the image lies in it; "" of an image beside them.

    Splits are no classes, and are entered as `first_level` says.
    """
    parts = {path: PurePosixPath(path).parts for path in sorted(paths)}
    top = first_level(parts.values(), is_packed)
    return {path: composed(names[top]) if len(names) > top + 1 else "" for path, names in parts.items()}


def first_level(paths: Collection[tuple[str, ...]], is_packed: bool = False) -> int:
    """The depth of the class folders, or of the images of a flat folder.

    Folders above them are splits, as train/ and test/; the only folder of an archive; and one that holds most images
    deeper down, with none beside it.
    """
    top = 0
    while folders := {names[top] for names in paths if len(names) > top + 1}:
        depths = [len(names) - top for names in paths]
        is_whole = len(folders) == 1 and min(depths) > 1
        is_entered = is_whole and (is_packed or sum(depth > 2 for depth in depths) > len(depths) / 2)
        if not is_entered and not all(map(NO_CLASS.fullmatch, folders)):
            break
        top += 1
    return top


def described(images: Mapping[str, str]) -> str:
    """Which folders of {path: class} were taken for splits, and how many images lie deeper, in words."""
    folders = {part for path in images for part in PurePosixPath(path).parts[:-1] if NO_CLASS.fullmatch(part)}
    names = ", ".join(sorted(folders - set(images.values())))
    deeper = sum(composed(PurePosixPath(path).parent.name) != name for path, name in images.items() if name)
    words = f"{deeper} of them in deeper folders, which count as the class folder that they are in" if deeper else ""
    return "; ".join(filter(None, [f"not taken for classes: {names}" if names else "", words]))


def walk(root: Path, tracked: bool = False) -> tuple[list[str], dict[str, str]]:
    """Every image file below a folder, at any depth, sorted, and {path: reason} for every other entry.

    A folder that may not be read, or that a link leads to a second time, is one entry. `tracked`: ValueError as
    `require_followed`.
    """
    home = os.path.realpath(root)
    images, rejected, todo, seen = [], {}, [("", home)], set()
    while todo:
        name, real = todo.pop()
        # A link may lead to a folder above it.
        if real in seen:
            rejected[f"{name}/"] = "folder that is read under another name"
            continue
        seen.add(real)
        try:
            with os.scandir(real) as listed:
                entries = sorted(listed, key=lambda entry: entry.name, reverse=True)
        except PermissionError:
            rejected[f"{name}/"] = "folder that may not be read"
            continue
        # A folder says what its entries are. Links alone are asked for: over a network each question is a message.
        for entry in entries:
            path, is_link = f"{name}/{entry.name}".lstrip("/"), entry.is_symlink()
            is_folder = leads_to_folder(entry)
            target = os.path.realpath(entry) if is_link else entry.path
            reason = unread(entry.name, is_folder)
            if tracked:
                require_kept(entry)
                if reason and is_folder and not is_link:
                    require_followed(Path(entry))
            if reason == NO_IMAGE and not is_link and not unfollowed(entry) and begins_as_image(entry):
                reason = None
            if not reason and is_link and os.path.commonpath([home, target]) != home:
                reason = "link leads outside the folder"
            if reason := reason or (None if is_folder else unfollowed(entry)):
                rejected[printable(path) + "/" * (is_folder and not is_link)] = reason
            elif is_folder:
                todo.append((path, target))
            else:
                images.append(path)
    return sorted(images), dict(sorted(rejected.items()))


def unread(path: str, is_folder: bool = False) -> str | None:
    """Why an entry of this name is not read as an image, or not entered; None where it is."""
    if wrong := misnamed(path):
        return wrong
    if is_hidden(path):
        return "hidden"
    return None if is_folder or PurePosixPath(path).suffix.lower() in SUFFIXES else NO_IMAGE


def begins_as_image(file: os.DirEntry[str]) -> bool:
    """Whether a file without a known suffix begins as images do; others are not opened."""
    suffix = PurePosixPath(file.name).suffix.lower()
    kind = known_types().guess_type(file.name)[0] or "image/unknown"
    if suffix in COPIES or not (suffix[1:] or "a").isalnum() or not kind.startswith("image/"):
        return False
    try:
        with open(file, "rb") as stream:
            return BEGINNINGS.match(stream.read(12)) is not None
    except PermissionError:  # a file that nobody named an image need not stop a run
        return False


def is_hidden(path: str) -> bool:
    return any(part.startswith(".") or part.casefold() in SYSTEM for part in PurePosixPath(path).parts)


def misnamed(name: str) -> str | None:
    """Why a file's name is none that can be stored; ValueError where the locale hides it."""
    if not name.isascii() and sys.getfilesystemencoding() != "utf-8":
        raise ValueError(
            f"names of files are read as UTF-8, and the locale is {sys.getfilesystemencoding()} ({name!a}): set "
            "PYTHONUTF8=1, or a locale such as LC_ALL=C.UTF-8"
        )
    return None if printable(name) == name else "name is not valid UTF-8"


def printable(name: str) -> str:
    """A name as text, with \\xe9 and so on in place of bytes that are no UTF-8."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def composed(name: str) -> str:
    """A name in the one form (NFC) in which names are compared: a Mac writes é as two letters."""
    return unicodedata.normalize("NFC", name)


def leads_to_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder or a link to one; OSError where the machine cannot tell."""
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno in NOWHERE:
            return False
        raise


def unfollowed(entry: os.DirEntry[str]) -> str | None:
    """Why a file is none that can be read: a link to nothing, a pipe (it would be waited for), a socket.

    OSError where the machine cannot tell.
    """
    try:
        if entry.is_symlink():
            entry.stat()
        if not entry.is_file():
            return "not a regular file"
    except OSError as error:
        if error.errno in NOWHERE:
            return "link leads nowhere"
        raise
    # Root reads all.
    return None if os.geteuid() == 0 or os.access(entry, os.R_OK) else "may not be read"


def require_followed(root: Path) -> None:
    """ValueError names a link to nothing, or a name that is no UTF-8, anywhere below a folder: DVC stops there."""
    folders = [str(root)] if root.is_dir() else []
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                require_kept(entry)
                folders += [entry.path] if entry.is_dir(follow_symlinks=False) else []


def require_kept(entry: os.DirEntry[str]) -> None:
    """`require_followed` of one entry."""
    wrong = misnamed(entry.path)
    if not wrong and entry.is_symlink() and not leads_to_folder(entry):
        wrong = unfollowed(entry)
    if wrong:
        raise ValueError(f"{printable(entry.path)}: {wrong}, and DVC would stop there; remove or rename it")


def few(names: list[str], most: int = NAMES_SHOWN) -> str:
    """The first few of some names, as text."""
    return ", ".join([*names[:most], *["..."] * (len(names) > most)])


def kind_of(path: str, reason: str) -> str:
    """The name under which a left-out entry is counted: the suffix of a file that is no image, else the reason."""
    suffix = PurePosixPath(path).suffix
    return suffix.lower() if reason == NO_IMAGE and suffix[1:].isalnum() else reason


def reasons(counts: Counter[str], of: int = 0) -> str:
    """The number of entries left out, `of` all, and their reasons, as text."""
    shown = few([f"{count} {reason}" for reason, count in counts.most_common()], REASONS)
    return f"{counts.total()}{f' of {of}' if of else ''} left out" + (f": {shown}" if shown else "")


def summary(rejected: dict[str, str]) -> str:
    """The number of entries left out, and the first few with their reasons."""
    shown = "; ".join(f"{path}: {reason}" for path, reason in sorted(rejected.items())[:NAMES_SHOWN])
    return f"{len(rejected)} left out" + (f", the first: {shown}" if shown else "")
