"""Compare an exported program with its model: the same images through both, in batches of several sizes."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image
from sklearn.datasets import load_sample_images

from polygrain.collection.postprocessing.comparison import PLAIN, Comparison
from polygrain.encoder import Model

MOST = 1e-4  # of any number of an embedding of unit length
BATCHES = (1, 2, 7)
RECTANGLES = ((1, 1.5), (2, 1), (1, 3))  # heights and widths, in shorter sides

Run = Callable[[np.ndarray], np.ndarray]


def samples(height: int, width: int) -> UInt8[np.ndarray, "image 3 height width"]:
    """Seven images of a size, px, always the same: noise, black, white, a ramp, and two photographs."""
    noise = np.random.default_rng(0).integers(0, 256, (2, 3, height, width), dtype=np.uint8)
    flat = [np.full((3, height, width), value, np.uint8) for value in (0, 255)]
    ramp = np.broadcast_to(np.linspace(0, 255, width).astype(np.uint8), (3, height, width))
    photos = [
        np.asarray(Image.fromarray(photo).resize((width, height), Image.Resampling.LANCZOS)).transpose(2, 0, 1)
        for photo in load_sample_images().images
    ]
    return np.stack([*noise, *flat, ramp, *photos])


def difference(model: Model, run: Run, uint8: bool, comparison: Comparison = PLAIN, free: bool = False) -> float:
    """The largest difference between the model's numbers, as they ask, and those of `run`, over all batches; `free`:
    over batches of rectangles, too."""
    side = model.config.size
    batches = [samples(side, side)[-count:] for count in BATCHES]
    batches += [samples(int(side * high), int(side * wide))[-2:] for high, wide in RECTANGLES if free]
    differences = []
    for images in batches:
        batch = images if uint8 else images / np.float32(255)
        with torch.inference_mode():
            expected = comparison.query(model(torch.from_numpy(batch)).numpy())
        result = run(batch)
        if result.shape != expected.shape:
            raise ValueError(f"the program gives {result.shape} for {len(batch)} images, the model {expected.shape}")
        differences.append(np.abs(result - expected).max())
    return float(np.max(differences))


def require_agreement(name: str, largest: float) -> None:
    """ValueError where a program differs by more than `MOST`, or by NaN."""
    if not largest <= MOST:
        raise ValueError(
            f"{name} differs from the model by {largest:.1e}, at most {MOST:.0e} is allowed; export stopped"
        )
