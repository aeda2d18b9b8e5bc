"""The training loop of all stages that train: epochs of shuffled batches, a checkpoint after each."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from pydantic import Field
from torch import Tensor, nn

from polygrain.compute import device, processes
from polygrain.compute.ahead import ahead
from polygrain.config.schema import Decay, Epochs, Rate, Section, Warmup
from polygrain.runner.progress import Rounds
from polygrain.training import checkpoint

log = logging.getLogger(__name__)


class Batch(NamedTuple):
    """One step's rows, and their values as read. `number` counts the steps of all epochs."""

    number: int
    rows: Int[Tensor, " row"]
    content: Any


class AdamSettings(Section):
    """Adam's epochs and learning rate, which follows a `Schedule`."""

    epochs: Epochs = Field(description="epochs over the training images (the most, where the best one is kept)")
    batch: int = Field(ge=2, description="images of a batch")
    learning_rate: Rate = Field(description="of Adam, at its highest")
    weight_decay: Decay = Field(
        description="Adam's own (coupled) decay; none of a classifier that starts at its classes"
    )
    warmup: Warmup = Field(description="epochs in which the rate rises to its full value")


Read = Callable[[Tensor], Any]
Step = Callable[[Batch, torch.Generator], dict[str, Tensor]]
Watch = Callable[[], float]


@dataclass(frozen=True)
class Loader:
    """The rows 0 to `count` - 1 in shuffled batches of `batch`.

    `prepare` is called before every epoch, with its number from 0, and returns a function that reads the rows of a
    batch. A thread calls it while the model works on the batch before.
    """

    count: int
    batch: int
    prepare: Callable[[int], Read]


@dataclass(frozen=True)
class Schedule:
    """Linear warm-up over `warmup` epochs, then a cosine down to `floor` times the full rate."""

    epochs: int
    warmup: float
    floor: float

    def factor(self, epoch: int | float) -> float:
        """The share of the full learning rate at a (fractional) epoch."""
        if epoch < self.warmup:
            return epoch / self.warmup
        done = (epoch - self.warmup) / max(self.epochs - self.warmup, 1e-9)
        return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))


def batches(count: int, size: int, generator: torch.Generator) -> list[Tensor]:
    """A shuffled epoch in batches of `size`. A last batch smaller than half of it, too small for batch statistics,
    joins the one before.
    """
    order = torch.randperm(count, generator=generator)
    pieces = list(order.split(size))
    if len(pieces) > 1 and len(pieces[-1]) < size / 2:
        pieces[-2:] = [torch.cat(pieces[-2:])]
    return pieces


def fit(
    trained: nn.Module,
    optimizer: torch.optim.Optimizer,
    schedule: Schedule,
    loader: Loader,
    step: Step,
    seed: int,
    folder: Path,
    watch: Watch | None = None,
) -> list[dict[str, int | float]]:
    """Takes a `step` for every batch of `loader` in every epoch; returns a row per epoch, the means of a step's values.

    `trained` holds all that changes. A step maps a batch and a generator to named values, of which `loss` is minimised.
    They are this process's part of a sum over all processes. Every epoch has a generator of its own (seed, epoch), so
    a run that continues from the checkpoint in `folder` ends with the same bytes, on a GPU up to rounding.

    `watch` measures `trained` after each epoch: the column `criterion`. At the end `trained` is as it was after the
    best epoch, the first of those that tie.

    ValueError for a loss that is not finite, and for a batch of fewer rows than there are processes.
    """
    sizes = [len(rows) for rows in batches(loader.count, loader.batch, torch.Generator())]
    processes.require(min(sizes), "rows in the smallest batch")
    device.keep_memory()
    rates = [group["lr"] for group in optimizer.param_groups]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    history = checkpoint.resume(folder, trained, optimizer)
    rounds = Rounds("epoch", len(sizes), "batch", schedule.epochs, len(history))
    for row in history:
        log.info("%s", rounds.line(int(row["epoch"]) - 1, values=values_of(row)))
    for epoch in range(len(history), schedule.epochs):
        generator = torch.Generator().manual_seed(seed * 100_003 + epoch)
        read = loader.prepare(epoch)
        totals: dict[str, Tensor] = {}
        pieces = batches(loader.count, loader.batch, generator)
        measure = partial(means, totals, len(sizes))
        for i, (rows, content) in enumerate(rounds.over(ahead(pieces, read), epoch, measure)):
            factor = schedule.factor(epoch + i / len(pieces))
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * factor
            values = step(Batch(epoch * len(pieces) + i, rows, content), generator)
            optimizer.zero_grad(set_to_none=True)
            values["loss"].backward()
            processes.add_up([parameter.grad for parameter in parameters if parameter.grad is not None])
            optimizer.step()
            # Summed on the device: reading a number here would make every step wait for the accelerator.
            for name, value in values.items():
                totals[name] = totals.get(name, 0) + value.detach() * len(rows) / loader.count
        sums = torch.stack([total.double() for total in totals.values()])
        processes.add_up([sums])
        history.append({"epoch": epoch + 1} | dict(zip(totals, sums.tolist(), strict=True)))
        require_finite(history, folder)
        if watch is not None:
            history[-1]["criterion"] = watch()
            if best(history) == len(history) - 1 and processes.rank() == 0:
                checkpoint.save_best(folder, trained)
        if processes.rank() == 0:
            checkpoint.save(folder, trained, optimizer, history)
        log.info("%s", rounds.line(epoch, values=values_of(history[-1])))
    if watch is not None:
        checkpoint.load_best(folder, trained)
    return history


def means(totals: dict[str, Tensor], count: int, done: int) -> dict[str, float]:
    """The means after `done` of `count` batches, as if all processes had the same values as this one."""
    return {name: float(total) * processes.count() * count / done for name, total in totals.items()}


def values_of(row: dict[str, int | float]) -> dict[str, int | float]:
    return {name: value for name, value in row.items() if name != "epoch"}


def best(history: list[dict[str, int | float]]) -> int:
    """The index of the epoch with the highest criterion, the first of those that tie."""
    return max(range(len(history)), key=lambda i: (history[i]["criterion"], -i))


def require_finite(history: list[dict[str, int | float]], folder: Path) -> None:
    """ValueError if the last epoch's loss is not finite."""
    epoch, loss = history[-1]["epoch"], history[-1]["loss"]
    if not math.isfinite(loss):
        raise ValueError(
            f"the loss became {loss} in epoch {epoch}: lower the learning rate ({folder} has the epochs before)"
        )
