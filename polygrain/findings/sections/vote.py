"""The nearest training images by the encoder and by the recommended model, side by side; no label is needed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from polygrain.findings.outcome import Content, Outcome
from polygrain.findings.sections.queries import pixels_of
from polygrain.report.pictures import pictured
from polygrain.store import arrays
from polygrain.store.reading import reading, remedy_for

NEIGHBOURS_SHOWN = 5
VOTES = 10  # images of a task that the reader is asked about


def content(found: Outcome) -> Content:
    """Of tasks without labels, drawn images with both lists under hidden names, for a vote."""
    samples, measured, shown = read(found.places.choice), {*found.table.tasks, *found.leading.tasks}, []
    for task in found.tasks:
        of_task = samples.get(task.name, [])
        asked = drawn(of_task, VOTES)
        if asked and task.name not in measured:
            entries = show(found.places.images / task.name, task.paths, asked, found.params.thumbnail)
            counts = {"all": len(of_task), "same": sum(not one.differs for one in of_task)}
            shown.append({"task": task.name, "counts": counts, "entries": entries})
    return {"votes": shown}


class Neighbours(NamedTuple):
    """An image and its nearest images under the encoder and the recommended model, best first: rows of its task."""

    row: int
    encoder: list[int]
    recommended: list[int]

    @property
    def differs(self) -> bool:
        """Whether the two lists hold other pictures, not the same ones in another order."""
        return {*self.encoder} != {*self.recommended}


def read(folder: Path) -> dict[str, list[Neighbours]]:
    """Per task the sampled images with the first five of both lists; images without a neighbour are left out."""
    file = folder / "neighbours.parquet"
    samples: dict[str, list[Neighbours]] = {}
    with reading(file, remedy_for(folder)):
        for entry in pq.read_table(file, columns=["task", "row", "encoder", "recommended"]).to_pylist():
            one = Neighbours(entry["row"], entry["encoder"][:NEIGHBOURS_SHOWN], entry["recommended"][:NEIGHBOURS_SHOWN])
            if one.encoder:
                samples.setdefault(entry["task"], []).append(one)
    return samples


def drawn(samples: Sequence[Neighbours], count: int) -> list[tuple[Neighbours, bool]]:
    """Images drawn from those whose lists differ, and of each whether the recommended model's list stands first.

    The draw depends on the rows of the sample alone.
    """
    asked, rng = [one for one in samples if one.differs], np.random.default_rng([one.row for one in samples])
    places = rng.permutation(len(asked))[:count]
    return [(asked[i], bool(first)) for i, first in zip(places, rng.integers(2, size=len(places)), strict=True)]


def show(
    images: Path, paths: Sequence[str], asked: Sequence[tuple[Neighbours, bool]], size: int
) -> list[dict[str, Any]]:
    """Entries of the page: the images of the task in folder `images`, each with its two lists; `paths` name them."""
    pixels = arrays.open(images / "pixels.zarr")
    entries = []
    for one, is_first in asked:
        lists = []
        for side in ("recommended", "encoder") if is_first else ("encoder", "recommended"):
            results = [
                {
                    "picture": pictured(pixels_of(pixels, i), size),
                    "is_shared": i in one.encoder and i in one.recommended,
                }
                for i in getattr(one, side)
            ]
            lists.append({"side": side, "results": results})
        entries.append({"path": paths[one.row], "picture": pictured(pixels_of(pixels, one.row), size), "lists": lists})
    return entries
