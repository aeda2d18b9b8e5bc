"""Training of one network by several processes: each takes a part of every batch, and all take the same step.

    torchrun --nproc-per-node 8 -m stages.mpcl_encoder ...

Without torchrun every function here is the identity. `core/compute/processes.py` knows who this process is and adds up.
"""

from torch import Tensor

from polygrain.compute import processes
from polygrain.training.whole_batch import whole


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
    return whole(values.movedim(dim, 0)).movedim(0, dim)


def mean(values: Tensor) -> Tensor:
    """The mean over processes, without gradient."""
    if processes.count() == 1:
        return values
    total = values.detach().clone()
    processes.add_up([total])
    return total / processes.count()
