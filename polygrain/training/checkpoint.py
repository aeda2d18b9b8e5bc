"""Checkpoints that outlive a kill: one safetensors file per run, replaced as a whole after every epoch.

They live in `.work/<stage>/<key>/` (store/work.py), outside DVC.
"""

import json
import logging
import os
import shutil
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn

from polygrain.compute import processes
from polygrain.store import work
from polygrain.store.reading import reading
from polygrain.store.tensors import load, settled, write_tensors
from polygrain.store.work import digest as digest  # of files that a run depends on, for `work_folder`

log = logging.getLogger(__name__)
WORK = work.WORK


def work_folder(stage: str, *inputs: object) -> Path:
    """The folder for a run with these inputs (parameters, digests of what it reads), under torch and sources as now."""
    return work.folder(stage, torch.__version__, *inputs)


def pack(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Everything that changes in training, as named tensors."""
    tensors = {f"module.{name}": tensor for name, tensor in module.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            if value is not None:
                tensors[f"optimizer.{index}.{name}"] = torch.as_tensor(value)
    return settled(tensors)


def replace(file: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Writes tensors in place of a file; a kill at any moment leaves the old or the new one, whole."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".new")
    try:
        write_tensors(tensors, fresh, metadata)
        with fresh.open("rb") as stream:
            os.fsync(stream.fileno())
    except BaseException:
        fresh.unlink(missing_ok=True)  # half a checkpoint would only keep a full disk full
        raise
    os.replace(fresh, file)


def read(file: Path, remedy: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and metadata of `replace`; ValueError names the file if it is missing or damaged."""
    with reading(file, remedy):
        return load(file)


def read_for_all(file: Path, remedy: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """`read` by the first of several processes, which hands it to the others: the file lies on its machine."""
    if processes.count() == 1:
        return read(file, remedy)
    tensors, metadata = read(file, remedy) if processes.rank() == 0 else ({}, {})
    content = processes.from_first(safetensors.torch.save(tensors))
    return safetensors.torch.load(content), json.loads(processes.from_first(json.dumps(metadata).encode()))


def save_best(folder: Path, module: nn.Module) -> None:
    """Keeps the module as it is now, beside the checkpoint, in place of what was best before."""
    replace(folder / "best.safetensors", settled(module.state_dict()), {})


def load_best(folder: Path, module: nn.Module) -> None:
    """Brings the module back to what `save_best` kept last."""
    tensors, _ = read_for_all(folder / "best.safetensors", f"delete {folder} to start this stage again")
    module.load_state_dict(tensors)


def save(
    folder: Path, module: nn.Module, optimizer: torch.optim.Optimizer, history: list[dict[str, int | float]]
) -> None:
    """Replaces the checkpoint by the present state; a kill at any moment leaves the old or the new one, whole."""
    replace(folder / "checkpoint.safetensors", pack(module, optimizer), {"history": json.dumps(history)})


def resume(folder: Path, module: nn.Module, optimizer: torch.optim.Optimizer) -> list[dict[str, int | float]]:
    """Brings module and optimizer to the last finished epoch and returns the history; an empty one at a first start.

    ValueError names the checkpoint if it was damaged.
    """
    file = folder / "checkpoint.safetensors"
    if not processes.from_first(bytes([file.exists()]))[0]:
        return []
    remedy = f"delete {folder} to start this stage again"
    tensors, metadata = read_for_all(file, remedy)
    with reading(str(file), remedy):
        history = json.loads(metadata["history"])
        module.load_state_dict({n.removeprefix("module."): t for n, t in tensors.items() if n.startswith("module.")})
        load_optimizer(optimizer, {n: t for n, t in tensors.items() if n.startswith("optimizer.")})
    log.info("continues after epoch %d (%s)", len(history), file)
    return history


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        _, index, key = name.split(".", 2)
        state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def clear(folder: Path) -> None:
    """Removes the checkpoint once the stage's output stands; of several processes, by the one that writes both."""
    if processes.rank() == 0:
        shutil.rmtree(folder, ignore_errors=True)
