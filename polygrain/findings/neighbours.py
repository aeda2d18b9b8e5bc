"""The nearest training images by the encoder and by the recommended model, side by side; no label is needed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from jaxtyping import UInt8

from polygrain.report.pictures import pictured
from polygrain.store import arrays
from polygrain.store.reading import reading, remedy_for

SHOWN = 5


class Neighbours(NamedTuple):
    """An image and its nearest images under the encoder and the recommended model, best first: rows of its task."""

    row: int
    encoder: list[int]
    recommended: list[int]

    @property
    def shared(self) -> int:
        """How many the two have in common."""
        return len({*self.encoder} & {*self.recommended})

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
            one = Neighbours(entry["row"], entry["encoder"][:SHOWN], entry["recommended"][:SHOWN])
            if one.encoder:
                samples.setdefault(entry["task"], []).append(one)
    return samples


def most_changed(samples: Sequence[Neighbours], count: int) -> list[Neighbours]:
    """The images whose two lists share fewest, by row among equals; none whose lists share all."""
    return sorted((one for one in samples if one.differs), key=lambda one: (one.shared, one.row))[:count]


def show(
    images: Path, paths: Sequence[str], changed: Sequence[Neighbours], titles: tuple[str, str], size: int
) -> list[dict[str, Any]]:
    """Entries of the page: the images of the task in folder `images`, each with its two lists; `paths` name them."""
    pixels = arrays.open(images / "pixels.zarr")
    entries = []
    for one in changed:
        lists = []
        for title, rows, others in zip(
            titles, (one.encoder, one.recommended), (one.recommended, one.encoder), strict=True
        ):
            results = [{"picture": pictured(pixels_of(pixels, i), size), "is_shared": i in others} for i in rows]
            lists.append({"title": title, "results": results})
        entry = {"path": paths[one.row], "picture": pictured(pixels_of(pixels, one.row), size), "shared": one.shared}
        entries.append(entry | {"of": len(one.encoder), "lists": lists})
    return entries


def pixels_of(pixels: arrays.Reader, row: int) -> UInt8[np.ndarray, "y x 3"]:
    (image,) = pixels.whole(np.array([row]))
    return image
