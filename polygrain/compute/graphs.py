"""A model's passes as CUDA graphs: one call starts all kernels of a pass, where Python starts them one by one."""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from polygrain.compute import device, processes


class Pass(nn.Module):
    """A function of one tensor, and the parameters that it differentiates."""

    def __init__(self, function: Callable[[Tensor], Tensor], trained: nn.Module) -> None:
        super().__init__()
        self.trained, self.function = trained, function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def graphed(
    function: Callable[[Tensor], Tensor],
    trained: nn.Module,
    batch: int,
    side: int,
    where: torch.device,
    precision: device.Precision,
) -> Callable[[Tensor], Tensor]:
    """The function of images in this precision; on a GPU with POLYGRAIN_GRAPHS=1 a graph for whole batches.

    `trained` holds all parameters that get a gradient. No other thread may use the device meanwhile.
    """
    shape = len(range(batch)[processes.share(batch)]), 3, side, side

    def plain(x: Tensor) -> Tensor:
        with device.autocast(where, precision):
            return function(x)

    if where.type != "cuda" or os.environ.get("POLYGRAIN_GRAPHS") != "1":
        return plain
    # Torch warns of what is meant: a gradient arrives from the stream that has recorded.
    torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    with device.autocast(where, precision):
        kind, cast = torch.get_autocast_dtype("cuda"), torch.is_autocast_enabled("cuda")
        # A cast weight that is kept from one pass to the next would lie in no graph.
        with torch.autocast("cuda", kind, cast, cache_enabled=False):
            sample = (torch.zeros(shape, device=where),)
            recorded: Any = torch.cuda.make_graphed_callables(Pass(function, trained), sample, allow_unused_input=True)
    return lambda x: recorded(x) if x.shape == shape else plain(x)
