"""The Barlow Twins loss. As in the original, views are centred; Grappa's Eq. 4 omits that."""

import torch
from jaxtyping import Float
from torch import Tensor

EPSILON = 1e-5


def standardise(z: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch dim"]:
    """Each dimension with mean 0 and (biased) variance 1 over the batch: batch norm without parameters."""
    centred = z - z.mean(0)
    return centred / (centred.square().mean(0) + EPSILON).sqrt()


def barlow_twins(z1: Float[Tensor, "batch dim"], z2: Float[Tensor, "batch dim"], beta: float) -> Float[Tensor, ""]:
    """sum_n (1 - C_nn)^2 + beta sum_{n != m} C_nm^2; C is the correlation of both views over the batch (Eq. 4)."""
    correlation = standardise(z1.float()).T @ standardise(z2.float()) / len(z1)
    diagonal = torch.diagonal(correlation)
    off_diagonal = correlation.square().sum() - diagonal.square().sum()
    return (1 - diagonal).square().sum() + beta * off_diagonal
