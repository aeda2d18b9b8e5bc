"""The images of a folder, zip or object store, by their names: `<class>/<image>` (labelled) or `<image>` (flat)."""

import os
import stat
from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

USUAL = (".jpg", ".jpeg", ".jfif", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".avif", ".jp2", ".j2k")
SUFFIXES = (*USUAL, ".ppm", ".pgm", ".pbm", ".pnm")
THUMBNAILS = ("__MACOSX", "@eaDir")  # folders that macOS and Synology lay beside images
SHOWN = 3


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
    """The classes of images by their paths alone; what fits neither layout joins the rejected.

    An image in a folder makes the task labelled: then images beside the class folders are left out. A folder that holds
    most images deeper down, and has none beside it, is entered; so is the only folder of an archive. ValueError for no
    image at all, a single class, and a folder of several tasks.
    """
    parts = {path: PurePosixPath(path).parts for path in sorted(paths)}
    top = 0
    while parts and len({names[top] for names in parts.values()}) == 1:
        depths = [len(names) - top for names in parts.values()]
        if max(depths) < 2 or not (is_packed or sum(depth > 2 for depth in depths) > len(depths) / 2):
            break
        top += 1
    deeper = [path for path, names in parts.items() if len(names) > top + 2]
    beside = [path for path, names in parts.items() if len(names) == top + 1]
    images = {path: names[top] for path, names in parts.items() if len(names) == top + 2}
    classes = sorted(set(images.values()))
    if deeper and not images and not beside:
        tasks = sorted({"/".join(parts[path][: top + 1]) for path in deeper})
        shown = ", ".join([*tasks[:SHOWN], *["..."] * (len(tasks) > SHOWN)])
        raise ValueError(f"{where} holds folders of class folders: give each of them as a task ({shown})")
    if len(classes) == 1:
        raise ValueError(
            f"{where} holds one class folder only ({classes[0]}, {len(images)} images) and {len(beside)} images "
            "beside it; a labelled task needs two classes or more, an unlabelled one its images directly in the folder"
        )
    rejected = rejected | dict.fromkeys(deeper, "deeper than <class>/<image>, which is not read")
    if classes:
        rejected |= dict.fromkeys(beside, "image beside the class folders")
    else:
        images = dict.fromkeys(beside, "")
    if not images:
        raise ValueError(f"{where} holds no image ({', '.join(SUFFIXES)}); {summary(rejected)}")
    return FolderContent(images, rejected)


def walk(root: Path) -> tuple[list[str], dict[str, str]]:
    """Every image file below a folder, at any depth, sorted, and {path: reason} for every other entry.

    A folder that may not be read, or that a link leads to a second time, is one entry.
    """
    images, rejected, todo, seen = [], {}, [""], set()
    while todo:
        name = todo.pop()
        # A link may lead to a folder above it.
        if (real := os.path.realpath(root / name)) in seen:
            rejected[f"{name}/"] = "folder that is read under another name"
            continue
        seen.add(real)
        try:
            inside, folders, others = scan(root, root / name)
        except PermissionError:
            rejected[f"{name}/"] = "folder that may not be read"
            continue
        images += inside
        rejected |= others
        todo += reversed(folders)
    return sorted(images), rejected


def scan(root: Path, folder: Path) -> tuple[list[str], list[str], dict[str, str]]:
    """Images, folders, and {path: reason} of other entries directly in `folder`, as sorted paths below `root`."""
    images, folders, rejected = [], [], {}
    home = os.path.realpath(root)
    for name in sorted(os.listdir(folder)):
        entry = folder / name
        path = entry.relative_to(root).as_posix()
        is_folder = entry.is_dir()
        reason = unread(name, is_folder)
        if not reason and os.path.commonpath([home, os.path.realpath(entry)]) != home:
            reason = "link leads outside the folder"
        reason = reason or (None if is_folder else unfollowed(entry))
        if reason:
            rejected[printable(path) + "/" * (is_folder and not entry.is_symlink())] = reason
        elif is_folder:
            folders.append(path)
        else:
            images.append(path)
    return images, folders, rejected


def unread(path: str, is_folder: bool = False) -> str | None:
    """Why an entry of this name is not read as an image, or not entered; None where it is."""
    if printable(path) != path:
        return "name is not valid UTF-8"
    if is_hidden(path):
        return "hidden"
    return None if is_folder or PurePosixPath(path).suffix.lower() in SUFFIXES else "not an image"


def is_hidden(path: str) -> bool:
    return any(part.startswith(".") or part in THUMBNAILS for part in PurePosixPath(path).parts)


def printable(name: str) -> str:
    """A name as text, with \\xe9 and so on in place of bytes that are no UTF-8."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def unfollowed(entry: Path) -> str | None:
    """Why a file is none that can be read: a link to nothing, a pipe (it would be waited for), a socket."""
    try:
        mode = entry.stat().st_mode
    except OSError:
        return "link leads nowhere"
    if not stat.S_ISREG(mode):
        return "not a regular file"
    return None if os.access(entry, os.R_OK) else "may not be read"


def require_followed(root: Path) -> None:
    """ValueError names a link to nothing, or a name that is no UTF-8, in a folder or anywhere below: DVC stops there.

    A folder says which of its files are links, so a million are looked through in a moment.
    """
    folders = [str(root)] if root.is_dir() else []
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                wrong = "name is not valid UTF-8" if printable(entry.path) != entry.path else None
                if entry.is_dir():
                    folders += [] if entry.is_symlink() else [entry.path]
                elif entry.is_symlink():
                    wrong = wrong or unfollowed(Path(entry))
                if wrong:
                    raise ValueError(f"{printable(entry.path)}: {wrong}, and DVC would stop there; remove or rename it")


def reasons(counts: Counter[str]) -> str:
    """How many entries are left out, and the most frequent reasons, as text."""
    shown = [f"{reason} ({count})" for reason, count in counts.most_common(SHOWN)]
    shown += ["..."] * (len(counts) > SHOWN)
    return f"{counts.total()} left out" + (f": {', '.join(shown)}" if shown else "")


def summary(rejected: dict[str, str]) -> str:
    """The number of entries left out, and the first few with their reasons."""
    shown = "; ".join(f"{path}: {reason}" for path, reason in sorted(rejected.items())[:SHOWN])
    return f"{len(rejected)} left out" + (f", the first: {shown}" if shown else "")
