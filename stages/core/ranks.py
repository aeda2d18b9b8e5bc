"""Several devices, started by torchrun: who this process is, and what the processes tell each other.

    torchrun --nproc-per-node 8 -m stages.mpcl_encoder ...

Without torchrun every function here is the identity.
"""

import os
import shutil
from pathlib import Path

import torch
from torch import Tensor, distributed
from torch.distributed.nn.functional import all_gather


def start() -> None:
    """Joins the group that torchrun describes in the environment, if there is one."""
    if "RANK" in os.environ and not distributed.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")


def stop() -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()


def rank() -> int:
    return distributed.get_rank() if distributed.is_initialized() else 0


def world() -> int:
    return distributed.get_world_size() if distributed.is_initialized() else 1


def share(rows: Tensor) -> Tensor:
    """This process's rows of a batch; ValueError unless the batch divides evenly."""
    if len(rows) % world():
        raise ValueError(f"a batch of {len(rows)} does not divide among {world()} processes: choose one that does")
    return rows.chunk(world())[rank()]


def gather(values: Tensor, dim: int) -> Tensor:
    """The values of all processes side by side along `dim`, in the order of `share`; gradients reach their owners."""
    return values if world() == 1 else torch.cat(all_gather(values.contiguous()), dim)


def mean(values: Tensor) -> Tensor:
    """The mean over processes, without gradient."""
    if world() == 1:
        return values
    total = values.detach().clone()
    distributed.all_reduce(total)
    return total / world()


def average_gradients(optimizer: torch.optim.Optimizer) -> None:
    """From now on, gradients are averaged over the processes before every step of this optimizer."""
    if world() == 1:
        return

    def average(optimizer: torch.optim.Optimizer, args: tuple, kwargs: dict) -> None:
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        flat = mean(torch.cat([gradient.flatten() for gradient in gradients]))
        for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    optimizer.register_step_pre_hook(average)


def own_copy(folder: Path) -> Path:
    """A checkpoint folder for this process alone, with what the first process left: all resume at the same epoch."""
    if world() == 1:
        return folder
    own = folder if rank() == 0 else folder.with_name(f"{folder.name}.{rank()}")
    distributed.barrier()
    if rank():
        shutil.rmtree(own, ignore_errors=True)
        if folder.exists():
            shutil.copytree(folder, own)
    distributed.barrier()
    return own
