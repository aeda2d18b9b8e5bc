"""Projector contrastive regularisation: heads should see the same image differently (MPCL, Eq. 2).

The text calls it a cross-correlation. It is the plain cosine, neither squared nor absolute, and without statistics of
the batch. So its minimum is not reached by orthogonal heads but by M heads that sum to zero: -1 / (M - 1).
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

    Eq. 2 sums over samples; here and in the contrastive loss stand means, so the ratio of the two is the paper's. For
    unit vectors, the sum over all pairs is |sum of heads|^2 - M, which is linear in M: no pair is ever formed.
    """
    heads = len(z)
    if heads < 2:
        return z.new_zeros((), dtype=torch.float32)
    total = functional.normalize(z.float(), dim=-1).sum(0)
    return (total.square().sum(-1).mean() - heads) / (heads * (heads - 1))
