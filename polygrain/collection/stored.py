"""A task's images as the pipeline stored them: for sources that are no folder of files."""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from polygrain.collection.file import STREAMED, File
from polygrain.collection.listing import Listing, fingerprint
from polygrain.collection.maker import graph_of, roots
from polygrain.sources.decode import Picture
from polygrain.store import arrays
from polygrain.store.image_table import read_table
from polygrain.store.rectangle import Shape, rectangle


class StoredImages(NamedTuple):
    """Images by path, as a `Listing` has them: their rows among the pixels, and by row a file's SHA-256 and class."""

    root: Path
    paths: list[str]
    rejected: dict[str, str]
    rows: dict[str, int]
    hashes: list[str]
    classes: list[str]
    pixels: arrays.Reader
    source: None = None

    def states(self) -> list[str]:
        """The table is written whenever the pixels are."""
        time = (self.root / "table.parquet").stat().st_mtime_ns
        return [f"{self.hashes[self.rows[path]]} {time}" for path in self.paths]

    def sha256(self, path: str) -> str:
        return self.hashes[self.rows[path]]

    def fingerprint(self) -> str:
        return fingerprint(dict(zip(self.paths, self.states(), strict=True)))

    def missing(self, path: str) -> None:
        """As in a `Listing`: empty here."""

    def image(self, path: str, side: int | None = None) -> Image.Image:
        (pixels,) = self.pixels.whole(np.array([self.rows[path]]))
        return Image.fromarray(pixels)

    def rectangle(self, path: str, side: int, shape: Shape) -> UInt8[np.ndarray, "y x 3"]:
        return rectangle(self.image(path), side, shape)

    def pictures(self, rows: slice, side: int, shape: Shape) -> list[Picture | str]:
        """The images of these paths, as a model of this side takes them."""
        seen = {path: self.rectangle(path, side, shape) for path in self.paths[rows]}
        return [Picture(one, side, side, 0, self.sha256(path)) for path, one in seen.items()]


Images = Listing | StoredImages


def located(file: File) -> Path | None:
    """The folder of a file's images: for a task's gallery the one in its graph's params.yaml, in each clone."""
    task = Path(os.path.abspath(file.place)).parent
    is_gallery = task.parent.name == "gallery"
    return (roots(graph_of(task)) if is_gallery else {}).get(task.name, file.facts.root)


def stored_beside(file: File, root: Path | None, paths: list[str]) -> StoredImages:
    """The pixels that the pipeline stored of a gallery's images: data/gallery/<task> stands beside data/images/<task>.

    ValueError where they are not there.
    """
    task = Path(os.path.abspath(file.place)).parent  # links of DVC are not followed: they lead into its cache
    images, whence = task.parents[1] / "images" / task.name, f"{root}, where the images of {file.place} came from,"
    if task.parent.name != "gallery" or not (images / "table.parquet").exists():
        if root is not None and root.exists():
            raise ValueError(f"{whence} has none as a file, and {images} with pixels of them is not there; {STREAMED}")
        raise ValueError(
            f"{whence} is not there: put the images back, name their folder with --root, or embed them anew"
        )
    table = read_table(images)
    rows = {path: row for row, path in enumerate(table["path"].to_pylist())}
    if list(rows) != paths:
        raise ValueError(f"{images} holds other images than {file.place}: `polygrain run` makes both of the same")
    hashes, classes = table["sha256"].to_pylist(), table["class_name"].to_pylist()
    return StoredImages(images, paths, {}, rows, hashes, classes, arrays.open(images / "pixels.zarr"))
