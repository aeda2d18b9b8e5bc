"""Shuffled batches of 128 photographs from a store coded as JPEG or WebP, warm, against the same ones stored raw.

Beside the rate it prints what the coded squares take of the raw ones' bytes. The photographs are crops of
scikit-learn's, at the encoder's 48 px and at 256 px.
"""

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

from benchmarks.measure import compare
from polygrain.store import arrays
from polygrain.store.coded import Coding

SIDES = {48: 4000, 256: 500}  # px: squares


def photographs(side: int, count: int) -> np.ndarray:
    """Crops of two photographs, 200 to 427 px of them each."""
    rng, photos = np.random.default_rng(0), [Image.fromarray(image) for image in load_sample_images().images]
    squares = []
    for number in range(count):
        photo, window = photos[number % 2], int(rng.integers(200, 427))
        left, top = (int(rng.integers(0, length - window + 1)) for length in photo.size)
        box = (left, top, left + window, top + window)
        squares.append(np.asarray(photo.resize((side, side), Image.Resampling.LANCZOS, box)))
    return np.stack(squares)


def stored(folder: Path, squares: np.ndarray, coding: Coding | None) -> arrays.Reader:
    with arrays.create(folder / "pixels.zarr", squares.shape[1:], "uint8", coding) as writer:
        writer.append(squares)
    return arrays.open(folder / "pixels.zarr")


def read(store: arrays.Reader, batches: list[np.ndarray]) -> None:
    for rows in batches:
        store[rows]


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    for side, count in SIDES.items():
        squares = photographs(side, count)
        batches = [rng.permutation(count)[:128] for _ in range(10)]
        with tempfile.TemporaryDirectory() as folder:
            raw = stored(Path(folder) / "raw", squares, None)
            for coding in (Coding("jpeg", 90), Coding("webp", 90)):
                ours = stored(Path(folder) / coding.format, squares, coding)
                size = sum(shard.nbytes for shard in ours.shards)
                error = np.abs(ours[:].astype(int) - squares).mean()
                compare(
                    f"shuffled batches of 128 squares, {side} px, {coding.format} of quality {coding.quality}",
                    partial(read, ours, batches),
                    partial(read, raw, batches),
                    5,
                    peer="the raw store",
                    squares=1280,
                    bytes_of_raw=round(size / squares.nbytes, 3),
                    estimated_of_raw=round(coding.estimate(side) * count / squares.nbytes, 3),
                    mean_error=round(float(error), 2),
                )
