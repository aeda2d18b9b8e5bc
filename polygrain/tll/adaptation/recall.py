"""Asymmetric recall: how often a pair is found from either of its two sides (Risser-Maroix et al., section 4.3)."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor


def recall_of(ranks: Int[Tensor, "*run pair"], ks: Sequence[int]) -> Float[Tensor, "*run k"]:
    """aR@k for each of `ks`: the share of pairs whose better rank (from 1) is at most k."""
    return torch.stack([(ranks <= k).double().mean(-1) for k in ks], -1)


def better_ranks(left: Float[Tensor, "pair dim"], right: Float[Tensor, "pair dim"]) -> Int[Tensor, " pair"]:
    """The better of the two ranks (from 1) of each pair, by inner product.

    Another image as similar as the right one counts as more similar, so a model that makes everything alike finds
    nothing.
    """
    similarities = left @ right.T
    truth = similarities.diagonal()
    return torch.minimum((similarities >= truth[:, None]).sum(1), (similarities >= truth).sum(0))
