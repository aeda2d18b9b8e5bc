"""Training of one network by several processes: each takes a part of every batch, and all take the same step.

    torchrun --nproc-per-node 8 -m stages.mpcl_encoder ...

Without torchrun every function here is the identity. `core/processes.py` knows who this process is.
"""

import torch
from torch import Tensor, distributed
from torch.distributed.nn.functional import all_gather

from stages.core import processes


def share(rows: Tensor) -> Tensor:
    """This process's rows of a batch; ValueError unless the batch divides evenly."""
    count = processes.count()
    if len(rows) % count:
        raise ValueError(f"a batch of {len(rows)} does not divide among {count} processes: choose one that does")
    return rows.chunk(count)[processes.rank()]


def gather(values: Tensor, dim: int) -> Tensor:
    """The values of all processes side by side along `dim`, in the order of `share`; gradients reach their owners."""
    if processes.count() == 1:
        return values
    processes.join()
    return torch.cat(all_gather(values.contiguous()), dim)


def mean(values: Tensor) -> Tensor:
    """The mean over processes, without gradient."""
    if processes.count() == 1:
        return values
    processes.join()
    total = values.detach().clone()
    distributed.all_reduce(total)
    return total / processes.count()


def average_gradients(optimizer: torch.optim.Optimizer) -> None:
    """From now on, gradients are averaged over the processes before every step of this optimizer."""
    if processes.count() == 1:
        return

    def average(optimizer: torch.optim.Optimizer, args: tuple, kwargs: dict) -> None:
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        flat = mean(torch.cat([gradient.flatten() for gradient in gradients]))
        for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    optimizer.register_step_pre_hook(average)
