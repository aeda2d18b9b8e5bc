"""Pictures of a collection's rows and of uploaded files, as the page shows them and as models see them."""

import io
import threading
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8
from PIL import Image
from starlette.exceptions import HTTPException

from polygrain.collection.stored import Images
from polygrain.compute.cores import cores
from polygrain.encoder.config import Config
from polygrain.sources.decode import picture, upright
from polygrain.store.rectangle import Unreadable, rectangle

THUMBNAIL, WHOLE = 224, 1024  # px, the longer side
LEAST_BOX = 8  # px


class Query(NamedTuple):
    """A query: a row, or an uploaded file; a box of it as left, top, right, bottom in 0..1."""

    row: int | None
    upload: bytes
    box: tuple[float, float, float, float] | None


class Pictures:
    """The images of a collection, by their rows."""

    def __init__(self, images: Images) -> None:
        self.images, self.paths = images, images.paths
        self.thumbnail = lru_cache(4096)(self.draw_thumbnail)
        # A large photograph takes hundreds of megabytes while it is decoded.
        self.decoding = threading.BoundedSemaphore(cores())

    def path(self, row: int) -> str:
        """The path of a row; HTTPException where there is no such row, or the image is gone."""
        if not 0 <= row < len(self.paths):
            raise HTTPException(404, f"there is no row {row}: rows are 0 to {len(self.paths) - 1}")
        if reason := self.images.missing(self.paths[row]):
            raise HTTPException(404, f"{self.paths[row]}: {reason}")
        return self.paths[row]

    def draw_thumbnail(self, row: int) -> bytes:
        """An image at its own proportions."""
        with self.decoding:
            image = self.whole(Query(row, b"", None), THUMBNAIL)
            sides = [max(1, round(side * THUMBNAIL / max(image.size))) for side in image.size]
            return jpeg(image.resize(sides, Image.Resampling.LANCZOS, reducing_gap=3))

    def whole(self, query: Query, side: int | None = None) -> Image.Image:
        """The image that is asked about, upright, as large as it is, or smaller if it will be scaled to `side`."""
        if query.row is None:
            return upright(io.BytesIO(query.upload), side)
        return self.images.image(self.path(query.row), side)

    def preview(self, query: Query) -> bytes:
        with self.decoding:
            image = self.whole(query, WHOLE)
            image.thumbnail((WHOLE, WHOLE), Image.Resampling.LANCZOS)
            return jpeg(image)

    def stored(self, query: Query, configs: list[Config]) -> list[UInt8[np.ndarray, "_ _ 3"]]:
        """The query as the pipeline of each model stores it."""
        kinds = [(config.resize, config.shape) for config in configs]
        with self.decoding:
            if query.box is not None:
                part = cut(self.whole(query), query.box)
                return [rectangle(part, *kind) for kind in kinds]
            if query.row is None:
                return [picture(io.BytesIO(query.upload), *kind).pixels for kind in kinds]
            return [self.images.rectangle(self.path(query.row), *kind) for kind in kinds]


def cut(image: Image.Image, box: tuple[float, float, float, float]) -> Image.Image:
    left, top, right, bottom = (round(place * side) for place, side in zip(box, 2 * image.size, strict=True))
    if right - left < LEAST_BOX or bottom - top < LEAST_BOX:
        raise Unreadable(f"the box is {right - left} x {bottom - top} pixels: draw one of {LEAST_BOX} or more each way")
    return image.crop((left, top, right, bottom))


def jpeg(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=88)
    return buffer.getvalue()
