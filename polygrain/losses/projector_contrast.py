"""Projector contrastive regularisation: heads should embed the same image differently (MPCL, Eq. 2).

The paper calls it a cross-correlation, but it is the plain cosine. Its minimum, -1 / (M - 1), is reached by M heads
that sum to zero, not by orthogonal heads.
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

    Eq. 2 sums over samples; this and the contrastive loss are means, so their ratio is the paper's. For unit vectors
    the sum over all pairs is |sum of heads|^2 - M, so no pair is formed.
    """
    heads = len(z)
    if heads < 2:
        return z.new_zeros((), dtype=torch.float32)
    total = functional.normalize(z.float(), dim=-1).sum(0)
    return (total.square().sum(-1).mean() - heads) / (heads * (heads - 1))
