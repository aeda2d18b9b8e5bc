"""Alignment and uniformity of an embedding (Wang and Isola, 2020), the two measures of MPCL's Table I."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional


def alignment(x: Float[Tensor, "batch dim"], y: Float[Tensor, "batch dim"]) -> Float[Tensor, ""]:
    """The mean squared distance between two views of the same images, on the unit sphere: from 0, the best, to 4."""
    return (functional.normalize(x, dim=1) - functional.normalize(y, dim=1)).square().sum(1).mean()


def uniformity(x: Float[Tensor, "batch dim"]) -> Float[Tensor, ""]:
    """log mean exp(-2 |a - b|^2) over all pairs of different images: lower is more evenly spread, 0 is one point."""
    return torch.pdist(functional.normalize(x, dim=1)).square().mul(-2).exp().mean().log()
