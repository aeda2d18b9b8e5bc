"""Which left image belongs to which right one: by equal names in two folders, or as a CSV says. Never by order.

A mistake in the pairing would silently teach nonsense, so whatever is missing, double or unclear is an error here.
"""

import csv
import os
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from polygrain.sources import folder

SHOWN = 5
PUBLISHED = "TLL_obj"


class PathPair(NamedTuple):
    """Paths below the root; `name` tells pairs apart, `group` is free ("" where none is given)."""

    name: str
    left: str
    right: str
    group: str


def find(root: Path, listed: str | None) -> list[PathPair]:
    """The pairs of a folder, sorted by name: of `left/` and `right/`, or of the CSV named `listed` in it."""
    if not root.is_dir():
        raise ValueError(f"{root} {'is not a folder' if root.exists() else 'does not exist'}: give a folder of pairs")
    pairs = by_name(root) if listed is None else by_list(root, listed)
    if not pairs:
        raise ValueError(f"{root} holds no pair of images")
    return sorted(pairs)


def by_name(root: Path) -> list[PathPair]:
    """left/<name>.<ext> with right/<name>.<ext>; the two extensions may differ."""
    sides = {}
    for side in ("left", "right"):
        if not (root / side).is_dir():
            raise ValueError(f"{root} has no folder {side}/: give left/ and right/, or name a CSV of pairs as `listed`")
        paths = folder.scan(root, root / side)[0]
        refuse(
            [name for name, count in Counter(map(stem, paths)).items() if count > 1], f"names twice in {root / side}"
        )
        sides[side] = {stem(path): path for path in paths}
    left, right = sides["left"], sides["right"]
    refuse(sorted(left.keys() - right.keys()), f"left images of {root} have no right one of the same name")
    refuse(sorted(right.keys() - left.keys()), f"right images of {root} have no left one of the same name")
    return [PathPair(name, left[name], right[name], "") for name in left]


def by_list(root: Path, listed: str) -> list[PathPair]:
    """The rows of `left,right[,group]`, or of the published list of names: left/<name> and right/<name>."""
    file = root / listed
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            rows = list(csv.DictReader(lines, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{file} cannot be read as CSV in UTF-8 ({error})") from error
    header = set(rows[0]) if rows else set()
    if {"left", "right"} <= header:
        pairs = [PathPair(row["left"], row["left"], row["right"], row.get("group") or "") for row in rows]
    elif PUBLISHED in header:
        names = [row[PUBLISHED] for row in rows]
        half = len(names) // 2
        if names[:half] == names[half:]:
            names = names[:half]  # the published file lists every name again, for the flipped images
        pairs = [PathPair(name, f"left/{name}", f"right/{name}", "") for name in names]
    else:
        raise ValueError(f"{file} needs the columns left,right[,group] or {PUBLISHED}; met {sorted(map(str, header))}")
    for side in ("left", "right"):
        paths = [getattr(pair, side) or "(empty)" for pair in pairs]
        refuse([path for path, count in Counter(paths).items() if count > 1], f"{side} images listed twice in {file}")
        refuse(
            [path for path in paths if not is_inside(root, path)], f"{side} images of {file} do not exist below {root}"
        )
    return pairs


def is_inside(root: Path, path: str) -> bool:
    """Whether the path leads to a file below the root, links followed."""
    home, target = os.path.realpath(root), os.path.realpath(root / path)
    return os.path.commonpath([home, target]) == home and os.path.isfile(target)


def stem(path: str) -> str:
    return PurePosixPath(path).stem


def refuse(names: list[str], what: str) -> None:
    """ValueError that counts and shows the names, if there are any."""
    if names:
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        raise ValueError(f"{len(names)} {what}: {', '.join(names[:SHOWN])}{more}")
