"""Training of one network by several processes: each takes a part of every batch, and all take the same step.

    torchrun --nproc-per-node 8 -m stages.mpcl_encoder ...

Without torchrun every function here is the identity. `core/compute/processes.py` knows who this process is and adds up.
"""

import torch
from torch import Tensor
from torch.distributed.nn.functional import all_gather

from stages.core.compute import processes


def share(rows: Tensor) -> Tensor:
    """This process's rows of a batch; ValueError unless the batch divides evenly."""
    count = processes.count()
    if len(rows) % count:
        raise ValueError(f"a batch of {len(rows)} does not divide among {count} processes: choose one that does")
    return rows[processes.share(len(rows))]


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
    total = values.detach().clone()
    processes.add_up([total])
    return total / processes.count()
