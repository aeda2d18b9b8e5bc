"""The nearest training images by the encoder and by the chosen model, side by side; no label is needed."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
from jaxtyping import UInt8

from polygrain.grappa.report.blind import BlindComparison
from polygrain.report.pictures import pictured
from polygrain.store import arrays
from polygrain.store.reading import reading, remedy_for

SHOWN = 5


class Found(NamedTuple):
    """An image and what either finds first, best first: all as rows of the image's task."""

    row: int
    encoder: list[int]
    chosen: list[int]

    @property
    def shared(self) -> int:
        """How many the two have in common."""
        return len({*self.encoder} & {*self.chosen})

    @property
    def differs(self) -> bool:
        """Whether there is another picture to see, not the same ones in another order."""
        return {*self.encoder} != {*self.chosen}


def read(folder: Path) -> dict[str, list[Found]]:
    """Per task the sampled images, of either list the first five; images without any neighbour are left out."""
    file, found = folder / "neighbours.parquet", {}
    with reading(file, remedy_for(folder)):
        for entry in pq.read_table(file, columns=["task", "row", "encoder", "chosen"]).to_pylist():
            one = Found(entry["row"], entry["encoder"][:SHOWN], entry["chosen"][:SHOWN])
            if one.encoder:
                found.setdefault(entry["task"], []).append(one)
    return found


def most_changed(found: Sequence[Found], count: int) -> list[Found]:
    """Those that share fewest of their neighbours, in the order of rows among equals; none that share all."""
    return sorted((one for one in found if one.differs), key=lambda one: (one.shared, one.row))[:count]


def draw(found: dict[str, list[Found]], count: int, seed: int) -> list[tuple[str, Found]]:
    """Up to `count` (task, image) whose neighbours differ, at random, as evenly over tasks as these allow."""
    generator = np.random.default_rng(seed)
    piles = {}
    for task, own in found.items():
        different = [one for one in own if one.differs]
        piles[task] = [different[i] for i in generator.permutation(len(different))]
    longest = max(map(len, piles.values()), default=0)
    dealt = [(task, pile[i]) for i in range(longest) for task, pile in piles.items() if i < len(pile)]
    return dealt[:count]


def show(
    images: Path, paths: Sequence[str], changed: Sequence[Found], titles: tuple[str, str], size: int
) -> list[dict]:
    """Entries of a gallery: the images of the task in folder `images`, each with its two lists; `paths` name them."""
    pixels = arrays.open(images / "pixels.zarr")
    entries = []
    for one in changed:
        lists = []
        for title, own, other in zip(titles, (one.encoder, one.chosen), (one.chosen, one.encoder), strict=True):
            items = [{"picture": picture(pixels, row, size), "is_shared": row in other} for row in own]
            lists.append({"title": title, "found": items})
        entry = {"path": paths[one.row], "picture": picture(pixels, one.row, size), "shared": one.shared}
        entries.append(entry | {"of": len(one.encoder), "lists": lists})
    return entries


def pixels_of(pixels: arrays.Reader, row: int) -> UInt8[np.ndarray, "y x 3"]:
    (image,) = pixels[np.array([row])]
    return image


def picture(pixels: arrays.Reader, row: int, size: int) -> str:
    return pictured(pixels_of(pixels, row), size)


def comparisons(images: Path, paths: dict[str, Sequence[str]], drawn: list[tuple[str, Found]]) -> list[BlindComparison]:
    """What the blind comparison shows of the drawn ones; `paths[task]` name the images of each task."""
    opened = {task: arrays.open(images / task / "pixels.zarr") for task in dict.fromkeys(task for task, _ in drawn)}
    made = []
    for task, one in drawn:
        query, *others = (pixels_of(opened[task], row) for row in (one.row, *one.encoder, *one.chosen))
        half = len(one.encoder)
        made.append(BlindComparison(task, paths[task][one.row], query, others[:half], others[half:]))
    return made
