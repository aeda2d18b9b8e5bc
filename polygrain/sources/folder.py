"""The images of a folder: `<root>/<class>/<image>` (labelled) or `<root>/<image>` (flat, unlabelled)."""

import os
from pathlib import Path
from typing import NamedTuple

SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")


class FolderContent(NamedTuple):
    """Image files as {path below the root: class name, "" if flat}, and {path: reason} for files left out."""

    images: dict[str, str]
    rejected: dict[str, str]


def find(root: Path) -> FolderContent:
    """The images below `root` by name; nothing is opened, hidden entries are ignored, links out of the root left out.

    A folder with an image in it makes the task labelled: then images beside class folders, and folders within them, are
    left out. ValueError for a missing root, no image at all, or a single class.
    """
    if not root.is_dir():
        raise ValueError(f"{root} {'is not a folder' if root.exists() else 'does not exist'}: give a folder of images")
    beside, folders, rejected = scan(root, root)
    images: dict[str, str] = {}
    for folder in folders:
        inside, deeper, left_out = scan(root, root / folder)
        images |= dict.fromkeys(inside, folder)
        rejected |= left_out | {f"{path}/": "folder within a class folder, which is not read" for path in deeper}
        if not inside:
            rejected[f"{folder}/"] = "folder without images directly in it"
    classes = sorted(set(images.values()))
    if len(classes) == 1:
        raise ValueError(
            f"{root} holds one class folder only ({classes[0]}, {len(images)} images) and {len(beside)} images "
            "beside it; a labelled task needs two classes or more, an unlabelled one its images directly in the folder"
        )
    if classes:
        rejected |= dict.fromkeys(beside, "image beside the class folders")
    else:
        images = dict.fromkeys(beside, "")
    if not images:
        raise ValueError(f"{root} holds no image ({', '.join(SUFFIXES)}); {summary(rejected)}")
    return FolderContent(images, rejected)


def scan(root: Path, folder: Path) -> tuple[list[str], list[str], dict[str, str]]:
    """Images, folders, and {path: reason} of other entries directly in `folder`, as sorted paths below `root`."""
    images, folders, rejected = [], [], {}
    home = os.path.realpath(root)
    for name in sorted(os.listdir(folder)):
        if name.startswith("."):
            continue
        entry = folder / name
        path = entry.relative_to(root).as_posix()
        if name != name.encode("utf-8", "replace").decode():
            rejected[os.fsencode(path).decode("utf-8", "backslashreplace")] = "name is not valid UTF-8"
        elif os.path.commonpath([home, os.path.realpath(entry)]) != home:
            rejected[path] = "link leads outside the folder"
        elif not entry.exists():
            rejected[path] = "link leads nowhere"
        elif entry.is_dir():
            folders.append(path)
        elif entry.suffix.lower() in SUFFIXES:
            images.append(path)
        else:
            rejected[path] = "not an image"
    return images, folders, rejected


def summary(rejected: dict[str, str], first: int = 3, count: int | None = None) -> str:
    """The number of entries left out (`count` if these are only some), and the first few with their reasons."""
    shown = "; ".join(f"{path}: {reason}" for path, reason in sorted(rejected.items())[:first])
    return f"{len(rejected) if count is None else count} left out" + (f", the first: {shown}" if shown else "")
