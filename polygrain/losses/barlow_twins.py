"""The Barlow Twins loss, with the batch mean taken off first.

Grappa prints Eq. 4 without that; the original centres.
"""

import torch
from jaxtyping import Float
from torch import Tensor

EPSILON = 1e-5


def standardise(z: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch dim"]:
    """Each dimension with mean 0 and (biased) variance 1 over the batch, as batch norm without parameters has it."""
    centred = z - z.mean(0)
    return centred / (centred.square().mean(0) + EPSILON).sqrt()


def barlow_twins(z1: Float[Tensor, "batch dim"], z2: Float[Tensor, "batch dim"], beta: float) -> Float[Tensor, ""]:
    """sum_n (1 - C_nn)^2 + beta sum_{n != m} C_nm^2, with C the cross-correlation of both views over the batch (Eq. 4).

    ValueError for shapes that differ, and for a batch of one, where no correlation exists.
    """
    if z1.shape != z2.shape or z1.ndim != 2 or len(z1) < 2:
        raise ValueError(f"two batches of equal shape with at least 2 rows are needed, met {z1.shape} and {z2.shape}")
    correlation = standardise(z1.float()).T @ standardise(z2.float()) / len(z1)
    diagonal = torch.diagonal(correlation)
    off_diagonal = correlation.square().sum() - diagonal.square().sum()
    return (1 - diagonal).square().sum() + beta * off_diagonal
