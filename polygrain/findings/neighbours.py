"""The nearest training images by the encoder and by the chosen model, side by side; no label is needed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from jaxtyping import UInt8

from polygrain.findings.blind import BlindComparison
from polygrain.report.pictures import pictured
from polygrain.store import arrays
from polygrain.store.reading import reading, remedy_for

SHOWN = 5


class Neighbours(NamedTuple):
    """An image and its nearest images under the encoder and the chosen model, best first: rows of its task."""

    row: int
    encoder: list[int]
    chosen: list[int]

    @property
    def shared(self) -> int:
        """How many the two have in common."""
        return len({*self.encoder} & {*self.chosen})

    @property
    def differs(self) -> bool:
        """Whether the two lists hold other pictures, not the same ones in another order."""
        return {*self.encoder} != {*self.chosen}


def read(folder: Path) -> dict[str, list[Neighbours]]:
    """Per task the sampled images with the first five of both lists; images without a neighbour are left out.

    Of a cluster with other tasks' images more may be left out of one list: both are as long as the shorter.
    """
    file = folder / "neighbours.parquet"
    samples: dict[str, list[Neighbours]] = {}
    with reading(file, remedy_for(folder)):
        for entry in pq.read_table(file, columns=["task", "row", "encoder", "chosen"]).to_pylist():
            length = min(SHOWN, len(entry["encoder"]), len(entry["chosen"]))
            one = Neighbours(entry["row"], entry["encoder"][:length], entry["chosen"][:length])
            if one.encoder:
                samples.setdefault(entry["task"], []).append(one)
    return samples


def most_changed(samples: Sequence[Neighbours], count: int) -> list[Neighbours]:
    """The images whose two lists share fewest, by row among equals; none whose lists share all."""
    return sorted((one for one in samples if one.differs), key=lambda one: (one.shared, one.row))[:count]


def draw(samples: dict[str, list[Neighbours]], count: int, seed: int) -> list[tuple[str, Neighbours]]:
    """Up to `count` (task, image) whose neighbours differ, at random, as evenly over tasks as these allow."""
    generator = np.random.default_rng(seed)
    piles = {}
    for task, images in samples.items():
        different = [one for one in images if one.differs]
        piles[task] = [different[i] for i in generator.permutation(len(different))]
    longest = max(map(len, piles.values()), default=0)
    dealt = [(task, pile[i]) for i in range(longest) for task, pile in piles.items() if i < len(pile)]
    return dealt[:count]


def show(
    images: Path, paths: Sequence[str], changed: Sequence[Neighbours], titles: tuple[str, str], size: int
) -> list[dict[str, Any]]:
    """Entries of a gallery: the images of the task in folder `images`, each with its two lists; `paths` name them."""
    pixels = arrays.open(images / "pixels.zarr")
    entries = []
    for one in changed:
        lists = []
        for title, rows, others in zip(titles, (one.encoder, one.chosen), (one.chosen, one.encoder), strict=True):
            results = [{"picture": pictured(pixels_of(pixels, i), size), "is_shared": i in others} for i in rows]
            lists.append({"title": title, "results": results})
        entry = {"path": paths[one.row], "picture": pictured(pixels_of(pixels, one.row), size), "shared": one.shared}
        entries.append(entry | {"of": len(one.encoder), "lists": lists})
    return entries


def pixels_of(pixels: arrays.Reader, row: int) -> UInt8[np.ndarray, "y x 3"]:
    (image,) = pixels[np.array([row])]
    return image


def comparisons(
    images: Path, paths: dict[str, Sequence[str]], drawn: list[tuple[str, Neighbours]]
) -> list[BlindComparison]:
    """The drawn images for the blind comparison; `paths[task]` name the images of each task."""
    opened = {task: arrays.open(images / task / "pixels.zarr") for task in {task for task, _ in drawn}}
    made = []
    for task, one in drawn:
        query, *others = (pixels_of(opened[task], row) for row in (one.row, *one.encoder, *one.chosen))
        half = len(one.encoder)
        made.append(BlindComparison(task, paths[task][one.row], query, others[:half], others[half:]))
    return made
