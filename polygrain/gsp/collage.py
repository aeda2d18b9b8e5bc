"""Collages: one picture of a class and three backgrounds in a 2 x 2 grid, so that a pooling must ignore three quarters.

GSP, 5.1, makes them of CIFAR-100.
"""

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch.nn import functional

CELLS = 4


def resize(pixels: UInt8[np.ndarray, "image y x 3"], size: int) -> UInt8[np.ndarray, "image size size 3"]:
    """Square images scaled with antialiasing."""
    if pixels.shape[1] == size:
        return pixels
    x = torch.from_numpy(np.ascontiguousarray(pixels)).permute(0, 3, 1, 2).float()
    x = functional.interpolate(x, (size, size), mode="bilinear", antialias=True, align_corners=False)
    return x.round().clamp(0, 255).byte().permute(0, 2, 3, 1).numpy()


def stitch(
    targets: UInt8[np.ndarray, "image y x 3"],
    backgrounds: UInt8[np.ndarray, "background y x 3"],
    copies: int,
    rng: np.random.Generator,
) -> tuple[UInt8[np.ndarray, "collage yy xx 3"], Int[np.ndarray, " collage"]]:
    """`copies` collages of every target, each with three other backgrounds, and the cell of the target (row-major).

    ValueError for fewer than three backgrounds.
    """
    if len(backgrounds) < CELLS - 1:
        raise ValueError(f"{len(backgrounds)} background images; a collage needs three or more")
    count, size = copies * len(targets), targets.shape[1]
    places = rng.integers(CELLS, size=count)
    chosen = np.stack([rng.choice(len(backgrounds), CELLS - 1, replace=False) for _ in range(count)])
    cells = np.empty((count, CELLS, size, size, 3), np.uint8)
    is_target = np.arange(CELLS) == places[:, None]
    cells[is_target] = np.repeat(targets, copies, axis=0)
    cells[~is_target] = backgrounds[chosen.ravel()]
    grid = cells.reshape(count, 2, 2, size, size, 3).transpose(0, 1, 3, 2, 4, 5)
    return grid.reshape(count, 2 * size, 2 * size, 3), places
