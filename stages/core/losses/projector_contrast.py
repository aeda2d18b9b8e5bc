"""Projector contrastive regularisation: heads should see the same image differently (MPCL, Eq. 2).

The text calls it a cross-correlation; it is the plain cosine, neither squared nor absolute, and no batch statistics
enter. Its least value is therefore not orthogonality but heads that sum to zero: -1 / (M - 1).
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional


def head_cosines(z: Float[Tensor, "head batch dim"]) -> Float[Tensor, "head head"]:
    """The cosine between each two heads, mean over the batch."""
    unit = functional.normalize(z.float(), dim=-1)
    return torch.einsum("mbd,lbd->ml", unit, unit) / z.shape[1]


def projector_contrast(z: Float[Tensor, "head batch dim"]) -> Float[Tensor, ""]:
    """The mean over the batch and the heads of a head's mean cosine to the other heads; 0 for a single head.

    Means stand where Eq. 2 sums over samples, as in the contrastive loss beside it, so their ratio is the paper's.
    With unit vectors, the pairs' sum is |sum of heads|^2 - M: linear in M, no pair is ever formed.
    """
    heads = len(z)
    if heads < 2:
        return z.new_zeros((), dtype=torch.float32)
    total = functional.normalize(z.float(), dim=-1).sum(0)
    return (total.square().sum(-1).mean() - heads) / (heads * (heads - 1))
