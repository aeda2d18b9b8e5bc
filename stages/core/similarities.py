"""Inner products of all rows with each other: each pair is multiplied once, as both orders give the same number."""

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

# Rows multiplied at once: enough for the product to be at its limit, few beside all, as their own pairs count twice.
BLOCK = 512


def similarities(x: Float32[Tensor, "n d"]) -> Float32[Tensor, "n n"]:
    """x x' on a processor."""
    n = len(x)
    # NumPy's memory comes in large pages, of which a fresh one costs far less than it costs to fill.
    products = torch.from_numpy(np.empty((n, n), np.float32))
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        torch.mm(x[start:stop], x[start:].T, out=products[start:stop, start:])
        products[stop:, start:stop] = products[start:stop, stop:].T
    return products
