"""Embeddings of a few images, as an array."""

import os
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from PIL import Image

from polygrain.compute import device
from polygrain.encoder.extract import in_passes
from polygrain.encoder.model import Model
from polygrain.encoder.views import centre_crop
from polygrain.sources.decode import decode, decoding, shown
from polygrain.store.rectangle import Unreadable

BATCH = 64
Given = str | os.PathLike | Image.Image  # type: ignore[type-arg]  # `isinstance` takes no parameters


def embed(
    model: Model, images: Given | Iterable[Given], batch: int = BATCH, skip: bool = False
) -> Float32[np.ndarray, "n dim"] | tuple[Float32[np.ndarray, "n dim"], dict[int, str]]:
    """Embeddings of unit length, a row for each image file or opened image, in their order; of one image one row.

    At most `batch` images are decoded at once. ValueError names an image that cannot be read; with `skip` it has no
    row, and the rows come with {place: reason} of such images, places from 0.
    """
    given = enumerate([images] if isinstance(images, Given) else images)
    rows, left = [np.empty((0, model.dim), np.float32)], {}
    while part := list(islice(given, batch)):
        pictures = []
        for place, image in part:
            try:
                pictures.append(prepared(model, image))
            except Unreadable as reason:
                if not skip:
                    name = getattr(image, "filename", "") or (image if isinstance(image, Given) else f"number {place}")
                    hint = "" if isinstance(images, Given) else "; with skip=True the others are embedded"
                    raise ValueError(f"{name} cannot be embedded: {reason}{hint}") from reason
                left[place] = str(reason)
        rows += [embed_pictures(model, pictures)]
    return (np.concatenate(rows), left) if skip else np.concatenate(rows)


def prepared(model: Model, image: object) -> UInt8[np.ndarray, "y x 3"]:
    """An image as the model's pipeline stores it; Unreadable with the reason why there is none."""
    if isinstance(image, Image.Image):
        with decoding():
            return shown(image, model.config.resize, model.config.shape)
    if not isinstance(image, str | os.PathLike):
        raise Unreadable(f"it is a {type(image).__name__}: give a file, or PIL's Image.fromarray of pixels")
    if os.path.isdir(image):
        raise Unreadable(f"it is a folder: give its images, such as sorted(Path({str(image)!r}).rglob('*.jpg'))")
    if not os.path.exists(image):
        raise Unreadable("there is no such file")
    return decode(Path(image), model.config.resize, model.config.shape).pixels


def embed_pictures(model: Model, pictures: Sequence[UInt8[np.ndarray, "_ _ 3"]]) -> Float32[np.ndarray, "n dim"]:
    """Embeddings of images that are as the model's pipeline stores them."""
    where, rows = next(model.parameters()).device, np.empty((len(pictures), model.dim), np.float32)
    alike: dict[tuple[int, ...], list[int]] = {}
    for place, picture in enumerate(pictures):
        alike.setdefault(picture.shape, []).append(place)
    for places in alike.values():
        images = device.staged(np.stack([pictures[place] for place in places]), where).to(where, non_blocking=True)
        with torch.inference_mode(), device.autocast(where, device.inference(model.config.size)[1]):
            crops = centre_crop(images, model.config.size)
            rows[places] = in_passes(model, crops, model.config.side).float().cpu().numpy()
    return rows
