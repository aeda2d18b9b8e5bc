"""A batch of which every process computed a part, whole in each of them: for losses that compare all of its rows."""

import torch
from jaxtyping import Float
from torch import Tensor

from polygrain.compute import processes


class Gathered(torch.autograd.Function):
    """`processes.gather`, through which gradients find their way back."""

    @staticmethod
    def forward(ctx: object, part: Tensor) -> Tensor:
        return processes.gather(part)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        total = gradient.clone()
        processes.add_up([total])
        return total[processes.share(len(total))]


def whole(part: Float[Tensor, "part ..."]) -> Float[Tensor, "batch ..."]:
    """All rows of a batch, from the part that `processes.share` gives each process; the parts may differ in length.

    What the losses of all processes add up to is what gradients are of: each process gets its part of them.
    """
    return part if processes.count() == 1 else Gathered.apply(part)
