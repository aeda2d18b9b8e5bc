"""The symmetric softmax loss over a whole similarity matrix, its gradient in closed form (Risser-Maroix et al., Eq. 1).

The plain version is two `cross_entropy` calls, on `sigma * left @ right.T` and on its transpose, under autograd, which
fills about ten matrices of the size of the similarities. Here is one, changed in place by blocks of rows that fit the
processor's cache. If one would exceed `keep_bytes`, only a block is held and products are formed twice.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from polygrain.compute.blocks import blocks_within

BLOCK_BYTES = 8 * 2**20
LEAST_ROWS = 512  # each block adds to the whole gradient of the right side, which costs more with smaller blocks
KEEP_BYTES = 2 * 2**30
LARGEST_SIGMA = 50.0


def symmetric_softmax(
    left: Float[Tensor, "run pair dim"],
    right: Float[Tensor, "run pair dim"],
    sigma: float,
    block_bytes: int = BLOCK_BYTES,
    keep_bytes: int = KEEP_BYTES,
) -> tuple[Float[Tensor, " run"], Float[Tensor, "run pair dim"], Float[Tensor, "run pair dim"]]:
    """The loss of each run, and its gradients for `left` and `right`, whose rows have length one (or zero).

    Row i of `left` belongs to row i of `right`. Let S = sigma * left @ right.T and E = exp(S). The loss is the mean of
    (log E 1 + log E'1) / 2 - diag S. Its gradient for S is (E / row sums + E / column sums - 2 I) / 2n. E needs no
    shift: e^50 times a million is still a float32. ValueError for a larger sigma.
    """
    if not 0 < sigma <= LARGEST_SIGMA:
        raise ValueError(f"sigma is {sigma}; it must be above 0 and at most {LARGEST_SIGMA:g}")
    runs, pairs, _ = left.shape
    blocks = blocks_within(pairs, 4 * pairs * runs, block_bytes, LEAST_ROWS)
    is_whole = 4 * runs * pairs * pairs <= keep_bytes
    matrix = left.new_empty((runs, pairs if is_whole else blocks[0].stop, pairs))

    def similarities(block: slice) -> Tensor:
        target = matrix[:, block] if is_whole else matrix[:, : block.stop - block.start]
        return torch.baddbmm(target, left[:, block], right.mT, beta=0, alpha=sigma, out=target)

    row_sums, column_sums = left.new_empty((runs, pairs)), left.new_zeros((runs, pairs))
    truth = left.new_empty((runs, pairs))
    for block in blocks:
        values = similarities(block)
        truth[:, block] = values.diagonal(block.start, 1, 2)
        values.exp_()
        torch.sum(values, 2, out=row_sums[:, block])
        column_sums += values.sum(1)
    loss = ((row_sums.log() + column_sums.log()) / 2 - truth).mean(1)

    # The gradient's factor sigma / 2n multiplies these small tensors instead of the large one.
    factor = sigma / (2 * pairs)
    row_shares, column_shares = (factor / row_sums)[:, :, None], (factor / column_sums)[:, None, :]
    left_gradient, right_gradient = torch.empty_like(left), torch.zeros_like(right)
    for block in blocks:
        values = matrix[:, block] if is_whole else similarities(block).exp_()
        values.mul_(row_shares[:, block] + column_shares)
        values.diagonal(block.start, 1, 2).sub_(2 * factor)
        torch.bmm(values, right, out=left_gradient[:, block])
        right_gradient.baddbmm_(values.mT, left[:, block])
    return loss, left_gradient, right_gradient
