"""Collections of drawn rows."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from polygrain import Collection
from polygrain.collection.file import Facts, File, write
from polygrain.collection.listing import Listing
from polygrain.collection.maker import Maker
from polygrain.collection.postprocessing import Comparison
from polygrain.encoder.model import Model

PLAIN = Comparison()


def collection(
    place: Path,
    paths: list[str],
    rows: np.ndarray,
    comparison: Comparison = PLAIN,
    searched: np.ndarray | None = None,
    network: Model | None = None,
) -> Collection:
    """The rows with names of images below /, in a file; `searched`: smoothed ones."""
    columns = (
        {"path": paths, "searched": rows} if searched is None else {"path": paths, "searched": searched, "plain": rows}
    )
    write(place, columns, Facts("abc", rows.shape[1], comparison, Path("/"), count=len(rows)))
    made = Collection(File(place), Maker(Path("/none"), network, "abc"))
    made.images = Listing(Path("/"), paths, {})
    return made


def smoothed(given: Collection, comparison: Comparison, searched: np.ndarray) -> Collection:
    """A collection with other rows to be searched, written in its place."""
    columns = {"path": given.paths, "searched": searched, "plain": given.plain}
    write(given.file.place, columns, replace(given.facts, comparison=comparison))
    return Collection(File(given.file.place), given.maker)
