"""Asymmetric recall: how often a pair is found from either of its two sides (Risser-Maroix et al., section 4.3)."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from polygrain.compute.blocks import blocks_within

BLOCK_BYTES = 64 * 2**20


def recall_of(ranks: Int[Tensor, "*run pair"], ks: Sequence[int]) -> Float[Tensor, "*run k"]:
    """aR@k for each of `ks`: the share of pairs whose better rank (from 1) is at most k."""
    return torch.stack([(ranks <= k).double().mean(-1) for k in ks], -1)


def better_ranks(
    left: Float[Tensor, "run pair dim"], right: Float[Tensor, "run pair dim"], block_bytes: int = BLOCK_BYTES
) -> Int[Tensor, "run pair"]:
    """The better of the two ranks (from 1) of each pair, by inner product.

    Another image as similar as the right one counts as more similar, so a model that makes everything alike finds
    nothing. Similarities are computed a block of rows at a time, which bounds the memory.
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
