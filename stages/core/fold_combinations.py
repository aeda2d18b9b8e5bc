"""One embedding of several folds' models: their mean, or all side by side (Musgrave et al., 2020; GSP, 1.6)."""

from itertools import product

import numpy as np
from jaxtyping import Float32


def combinations(folds: int, repeats: int) -> list[tuple[int, ...]]:
    """Every choice of one repeat per fold: `repeats ** folds` of them (the paper: 3^4 = 81)."""
    return list(product(range(repeats), repeat=folds))


def combine(vectors: list[Float32[np.ndarray, "image dim"]]) -> dict[str, Float32[np.ndarray, "image any"]]:
    """`mean`: the average of the unit vectors, as long as one of them; `concat`: all in a row. Unit length, both."""
    joined = {"mean": np.mean(vectors, 0), "concat": np.concatenate(vectors, 1)}
    return {
        form: (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)).astype(np.float32)
        for form, x in joined.items()
    }


def spread(values: list[float]) -> dict[str, float]:
    """Mean, standard deviation (of the sample; 0 for one value), smallest and largest."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {"mean": float(np.mean(values)), "std": deviation, "min": min(values), "max": max(values)}
