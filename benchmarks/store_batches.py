"""Shuffled batches of 128 from the image store, warm, against `numpy.memmap` of a .npy with the same images."""

import tempfile
from pathlib import Path

import numpy as np

from benchmarks.measure import compare
from polygrain.store import arrays

if __name__ == "__main__":
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        images = rng.integers(0, 256, (1500, 256, 256, 3), dtype=np.uint8)
        arrays.write(Path(folder) / "pixels.zarr", images)
        np.save(Path(folder) / "pixels.npy", images)
        ours, peer = arrays.open(Path(folder) / "pixels.zarr"), np.load(Path(folder) / "pixels.npy", mmap_mode="r")
        batches = [rng.permutation(len(images))[:128] for _ in range(10)]
        assert all((ours[rows] == peer[rows]).all() for rows in batches)
        compare(
            "shuffled batches of 128 images, 256 px",
            lambda: [ours[rows] for rows in batches],
            lambda: [peer[rows] for rows in batches],
            5,
            peer="np.memmap",
            equality="all batches equal",
        )
