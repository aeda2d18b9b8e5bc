"""A whole batch in every process, of which each computed a part: for losses that compare all of its rows."""

import torch
from jaxtyping import Float
from torch import Tensor

from polygrain.compute import processes


class Gathered(torch.autograd.Function):
    """`processes.gather`, through which gradients go back to the process that computed a row."""

    @staticmethod
    def forward(ctx: object, part: Tensor) -> Tensor:
        return processes.gather(part)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        total = gradient.clone()
        processes.add_up([total])
        return total[processes.share(len(total))]


def whole(part: Float[Tensor, "..."], dim: int = 0) -> Float[Tensor, "..."]:
    """The parts of all processes, one behind the other along `dim`; they may differ in length, as `processes.share`.

    Gradients are of the sum of all processes' losses.
    """
    if processes.count() == 1:
        return part
    return Gathered.apply(part.movedim(dim, 0)).movedim(0, dim)
