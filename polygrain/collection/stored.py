"""A task's images as the pipeline stored them: for sources that are no folder of files."""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from polygrain.collection.listing import STREAMED, Listing, fingerprint
from polygrain.sources.decode import Picture
from polygrain.store import arrays
from polygrain.store.image_table import read_table
from polygrain.store.rectangle import Shape, rectangle


class Squares(NamedTuple):
    """Images by path, as a `Listing` has them: their rows among the squares, and by row a file's SHA-256 and class."""

    root: Path
    paths: list[str]
    rejected: dict[str, str]
    rows: dict[str, int]
    hashes: list[str]
    classes: list[str]
    pixels: arrays.Reader

    def states(self) -> list[str]:
        """The table is written whenever the squares are."""
        time = (self.root / "table.parquet").stat().st_mtime_ns
        return [f"{self.hashes[self.rows[path]]} {time}" for path in self.paths]

    def sha256(self, path: str) -> str:
        return self.hashes[self.rows[path]]

    def fingerprint(self) -> str:
        return fingerprint(dict(zip(self.paths, self.states(), strict=True)))

    def image(self, path: str) -> Image.Image:
        (pixels,) = self.pixels.whole(np.array([self.rows[path]]))
        return Image.fromarray(pixels)

    def rectangle(self, path: str, side: int, shape: Shape) -> UInt8[np.ndarray, "y x 3"]:
        return rectangle(self.image(path), side, shape)

    def pictures(self, rows: slice, side: int, shape: Shape) -> list[Picture | str]:
        """The images of these paths, as a model of this side takes them."""
        seen = {path: self.rectangle(path, side, shape) for path in self.paths[rows]}
        return [Picture(one, side, side, 0, self.sha256(path)) for path, one in seen.items()]


Images = Listing | Squares


def images_of(file: Path, root: Path, paths: list[str]) -> Images:
    """The images below `root` that a file has embeddings of; where none lies there, the squares that stand for them.

    data/gallery/<task> stands beside data/images/<task>. ValueError where neither is there.
    """
    if any((root / path).is_file() for path in paths):
        return Listing(root, paths, {})
    task = Path(os.path.abspath(file)).parent  # links of DVC are not followed: they lead into its cache
    images, whence = task.parents[1] / "images" / task.name, f"{root}, where the images of {file} came from,"
    if task.parent.name != "gallery" or not (images / "table.parquet").exists():
        if root.exists():
            raise ValueError(f"{whence} has none as a file, and {images} with squares of them is not there; {STREAMED}")
        raise ValueError(f"{whence} is not there: put the images back, or embed them anew")
    table = read_table(images)
    rows = {path: row for row, path in enumerate(table["path"].to_pylist())}
    if list(rows) != paths:
        raise ValueError(f"{images} holds other images than {file}: `polygrain run` makes both of the same")
    hashes, classes = table["sha256"].to_pylist(), table["class_name"].to_pylist()
    return Squares(images, paths, {}, rows, hashes, classes, arrays.open(images / "pixels.zarr"))
