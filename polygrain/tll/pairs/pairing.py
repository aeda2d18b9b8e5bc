"""Which left image belongs to which right one: by equal names in two folders, or by the published list. Never by order.

A wrong pair would teach nonsense in silence, so a missing, double or unclear name is an error.
"""

import csv
from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from polygrain.sources import folder

NAMES_SHOWN = 5
PUBLISHED = "TLL_obj"


class PathPair(NamedTuple):
    """Paths below the root; `name` tells pairs apart."""

    name: str
    left: str
    right: str


def find(root: Path, listed: str | None) -> list[PathPair]:
    """The pairs of a folder, sorted by name: of `left/` and `right/`, or those that the CSV `listed` in it names."""
    if not root.is_dir():
        raise ValueError(f"{root} {'is not a folder' if root.exists() else 'does not exist'}: give a folder of pairs")
    pairs = by_name(root) if listed is None else by_list(root, listed)
    if not pairs:
        raise ValueError(f"{root} holds no pair of images")
    return sorted(pairs)


def by_name(root: Path) -> list[PathPair]:
    """left/<name>.<ext> with right/<name>.<ext>; the two extensions may differ."""
    sides, found = [], folder.walk(root)[0]
    for side in ("left", "right"):
        if not (root / side).is_dir():
            raise ValueError(f"{root} has no folder {side}/: give left/ and right/")
        paths = [path for path in found if path.rpartition("/")[0] == side]
        refuse_twice(map(stem, paths), f"names twice in {root / side}")
        sides.append({stem(path): path for path in paths})
    left, right = sides
    refuse(sorted(left.keys() - right.keys()), f"left images of {root} have no right one of the same name")
    refuse(sorted(right.keys() - left.keys()), f"right images of {root} have no left one of the same name")
    return [PathPair(name, left[name], right[name]) for name in left]


def by_list(root: Path, listed: str) -> list[PathPair]:
    """left/<name> and right/<name> of each name in the published CSV, which lists it again for the flipped images."""
    file = root / listed
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            names = dict.fromkeys(row[PUBLISHED] for row in csv.DictReader(lines, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error, KeyError) as error:
        raise ValueError(f"{file} cannot be read as CSV with the column {PUBLISHED} ({error})") from error
    pairs = [PathPair(name, f"left/{name}", f"right/{name}") for name in names]
    absent = [path for pair in pairs for path in (pair.left, pair.right) if not (root / path).is_file()]
    refuse(absent, f"images of {file} do not exist below {root}")
    return pairs


def stem(path: str) -> str:
    return PurePosixPath(path).stem


def refuse_twice(names: Iterable[str], what: str) -> None:
    """ValueError if a name is there more than once."""
    refuse([name for name, count in Counter(names).items() if count > 1], what)


def refuse(names: list[str], what: str) -> None:
    """ValueError that counts and shows the names, if there are any."""
    if names:
        more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
        raise ValueError(f"{len(names)} {what}: {', '.join(names[:NAMES_SHOWN])}{more}")
