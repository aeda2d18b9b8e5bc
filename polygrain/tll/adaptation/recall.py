"""Asymmetric recall: how often a pair is found from either of its two sides (Risser-Maroix et al., section 4.3)."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from polygrain.compute.blocks import blocks_within

BLOCK_BYTES = 64 * 2**20


def asymmetric_recall(
    similarity: Float[np.ndarray, "..."] | Float[Tensor, "..."], ks: Sequence[int]
) -> Float[np.ndarray, " k"]:
    """aR@k for each of `ks`: the share of pairs found among the k most similar in at least one of the two directions.

    `similarity` is left x right, and its diagonal is the truth. Another image as similar as the right one counts as
    more similar, so a model that makes everything alike finds nothing. ValueError for a matrix that is not square,
    empty or not finite, and for a k below 1.
    """
    values = torch.as_tensor(similarity)
    if values.ndim != 2 or values.shape[0] != values.shape[1] or not len(values):
        raise ValueError(f"a square left x right matrix is needed, met the shape {tuple(values.shape)}")
    if not values.isfinite().all():
        raise ValueError("the similarities hold values that are not finite: look for rows that are not numbers")
    if wrong := [k for k in ks if k < 1]:
        raise ValueError(f"k is {wrong[0]}; recall at k needs k = 1 or more")
    truth = values.diagonal()
    is_other = ~torch.eye(len(values), dtype=torch.bool, device=values.device)
    forth = ((values >= truth[:, None]) & is_other).sum(1)
    back = ((values >= truth[None, :]) & is_other).sum(0)
    return recall_of(1 + torch.minimum(forth, back), ks).cpu().numpy()


def recall_of(ranks: Int[Tensor, "*run pair"], ks: Sequence[int]) -> Float[Tensor, "*run k"]:
    """The share of pairs whose rank (from 1) is at most k, for each of `ks`."""
    return torch.stack([(ranks <= k).double().mean(-1) for k in ks], -1)


def better_ranks(
    left: Float[Tensor, "run pair dim"], right: Float[Tensor, "run pair dim"], block_bytes: int = BLOCK_BYTES
) -> Int[Tensor, "run pair"]:
    """The better of the two ranks (from 1) of each pair, by inner product; equals count against, as above.

    The similarities are formed a block of rows at a time, so that memory stays bounded for any number of pairs.
    """
    runs, pairs, _ = left.shape
    blocks = blocks_within(pairs, 4 * pairs * runs, block_bytes)
    truth = torch.cat([torch.bmm(left[:, b], right[:, b].mT).diagonal(0, 1, 2) for b in blocks], 1)
    forth = torch.ones((runs, pairs), dtype=torch.int64, device=left.device)
    back = torch.ones_like(forth)
    for block in blocks:
        values = torch.bmm(left[:, block], right.mT)
        values.diagonal(block.start, 1, 2).fill_(-torch.inf)
        forth[:, block] += (values >= truth[:, block, None]).sum(2)
        back += (values >= truth[:, None, :]).sum(1)
    return torch.minimum(forth, back)
