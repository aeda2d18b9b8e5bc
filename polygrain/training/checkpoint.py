"""Checkpoints that outlive a kill: one safetensors file per run, replaced as a whole after every epoch.

They lie in `.work/<stage>/<item>/<key>/` (store/work.py), outside DVC. Of several processes the first writes and reads
them.
"""

import json
import logging
import os
import shutil
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from polygrain.compute import processes
from polygrain.runner import inputs
from polygrain.store import work
from polygrain.store.drafts import drafted

log = logging.getLogger(__name__)
work_folder = work.folder
History = list[dict[str, int | float]]


def write(file: Path, tensors: dict[str, Tensor]) -> None:
    """Writes tensors in place of a file. A kill at any moment leaves the old file or the new one, whole."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with drafted(file) as draft, draft.open("wb") as stream:
        stream.write(safetensors.torch.save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}))
        stream.flush()
        os.fsync(stream.fileno())


def read(file: Path) -> dict[str, Tensor]:
    """The tensors of a file, in all processes; none without a file. ValueError names a damaged one."""
    content = processes.from_first(file.read_bytes() if processes.rank() == 0 and file.exists() else b"")
    try:
        return safetensors.torch.load(content) if content else {}
    except SafetensorError as error:
        raise ValueError(f"{file} is damaged ({error}); delete {file.parent} to start this stage again") from error


def save(folder: Path, module: nn.Module, optimizer: torch.optim.Optimizer, history: History) -> None:
    """Replaces the checkpoint by the present state, and logs inputs of the stage that have changed meanwhile."""
    tensors = {f"module.{name}": tensor for name, tensor in module.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            if value is not None:
                tensors[f"optimizer.{index}.{name}"] = torch.as_tensor(value)
    tensors["history"] = torch.frombuffer(bytearray(json.dumps(history).encode()), dtype=torch.uint8)
    write(folder / "checkpoint.safetensors", tensors)
    inputs.watch.look()


def resume(folder: Path, module: nn.Module, optimizer: torch.optim.Optimizer) -> History:
    """Brings module and optimizer to the last finished epoch and returns the history, which is empty at first.

    A damaged one is named and its folder removed: the training starts anew.
    """
    try:
        tensors = read(folder / "checkpoint.safetensors")
    except ValueError as error:
        log.warning("%s: deleted, the training starts anew", error)
        clear(folder)
        return []
    if not tensors:
        return []
    history = json.loads(tensors.pop("history").numpy().tobytes())
    weights: dict[str, Tensor] = {}
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        owner, _, key = name.partition(".")
        if owner == "module":
            weights[key] = tensor
        else:
            index, _, value = key.partition(".")
            state.setdefault(int(index), {})[value] = tensor
    module.load_state_dict(weights)
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    log.info("continues after epoch %d (%s)", len(history), folder)
    return history


def save_best(folder: Path, module: nn.Module) -> None:
    """Stores the module beside the checkpoint, in place of the best one before."""
    write(folder / "best.safetensors", module.state_dict())


def load_best(folder: Path, module: nn.Module) -> None:
    """Brings the module back to what `save_best` stored last."""
    module.load_state_dict(read(folder / "best.safetensors"))


def clear(folder: Path) -> None:
    """Removes a checkpoint that is of no use any more; the command removes that of a stage whose result is kept."""
    if processes.rank() == 0:
        shutil.rmtree(folder, ignore_errors=True)
