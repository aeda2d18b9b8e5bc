"""Vectors for benchmarks: a hierarchical mixture on the unit sphere, 6 groups of 10 of n/3,600 of about 60 points."""

import numpy as np
from jaxtyping import Float32

from polygrain.compute.blocks import blocks

PAPER = 133_339
ROWS = 65_536  # drawn at once: ten million fit into memory
SIZES = (256, 1_024, 4_096, 8_192, 16_384, 32_768, 65_536, 131_072)


def hierarchical_mixture(n: int, dim: int = 384, seed: int = 0) -> Float32[np.ndarray, "n dim"]:
    """Centres scatter around centres of the level above, less at every level; leaves differ in size."""
    rng = np.random.default_rng(seed)
    centres = np.zeros((1, dim))
    for count, spread in ((6, 1.0), (60, 0.8), (n // 60, 0.7)):
        parents = rng.integers(len(centres), size=count)
        centres = centres[parents] + spread * rng.normal(size=(count, dim)) / dim**0.5
    leaves = rng.choice(len(centres), n, p=rng.dirichlet(np.full(len(centres), 2.0)))
    vectors = np.empty((n, dim), np.float32)
    for part in blocks(n, ROWS):
        points = centres[leaves[part]] + 0.6 * rng.normal(size=(part.stop - part.start, dim)) / dim**0.5
        vectors[part] = points / np.linalg.norm(points, axis=1, keepdims=True)
    return vectors


def scaled(n: int) -> list[int]:
    """The paper's eight k, scaled from its 133,339 training images to n."""
    return [max(2, round(k * n / PAPER)) for k in SIZES]
