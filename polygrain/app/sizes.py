"""How large the images of a new profile are, by the heads of a few of each task."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from polygrain.config.folders import Folder
from polygrain.sources import archive, decode, folder
from polygrain.sources.streams import stream
from polygrain.store.rectangle import LONGEST, SQUARISH

HEADS = 200  # of a task


class Sizes(NamedTuple):
    """`shorter`: the median shorter side, px, in the task where it is largest; None where no head was read.

    `seen`: what the encoder sees of an image, in squares of its side.
    """

    shorter: int | None = None
    seen: float = 1.0


def sizes_of(tasks: Iterable[Folder]) -> Sizes:
    """The sizes of the images of all tasks."""
    found = [np.sort(sides, 1) for task in tasks if len(sides := np.array(list(heads(task))))]
    if not found:
        return Sizes()
    ratios = np.concatenate([sides[:, 1] / sides[:, 0] for sides in found])
    seen = np.where(ratios > SQUARISH, np.minimum(ratios, LONGEST), 1)
    return Sizes(int(max(np.median(sides[:, 0]) for sides in found)), float(seen.mean()))


def heads(task: Folder) -> Iterator[tuple[int, int]]:
    """Width and height of some images; those that cannot be opened, and those of an object store, are passed over."""
    for opened in openers(task):
        try:
            with opened() as file, decode.bounded(file) as (_, size):
                yield size
        except (ValueError, OSError):
            continue


def openers(task: Folder) -> Iterable[Callable[[], Any]]:
    """What opens each of some images of a task."""
    if task.source == "remote":
        return []
    path = Path(task.path)
    if task.source != "folder":
        entries = stream.find(path, task.source, task.files).entries()
        return (partial(BytesIO, entry.content) for entry in islice(entries, HEADS) if isinstance(entry.content, bytes))
    if path.is_dir():
        return [partial(open, path / name, "rb") for name in spread(folder.walk(path)[0])]
    with archive.reading(path) as packed:
        listed = [entry for entry in archive.entries(path)[0] if not folder.unread(entry.filename)]
        return [partial(BytesIO, packed.read(entry)) for entry in spread(listed)]


def spread(all_of: list[Any]) -> list[Any]:
    """Some of them, evenly."""
    return all_of[:: -(-len(all_of) // HEADS) or 1]
