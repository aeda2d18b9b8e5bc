"""The training loop of all stages that train: epochs of shuffled batches, a checkpoint after each."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from stages.core.compute import processes
from stages.core.compute.ahead import ahead
from stages.core.runner.progress import progress
from stages.core.training import checkpoint

log = logging.getLogger(__name__)

Step = Callable[..., dict[str, Tensor]]


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
    """A shuffled epoch in batches of `size`; a last batch smaller than half of it joins the one before.

    Nobody is left out of an epoch, and no batch is too small for batch statistics.
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
    count: int,
    batch: int,
    seed: int,
    step: Step,
    folder: Path,
    start_epoch: Callable[[int], None] = lambda epoch: None,
    load: Callable[[Tensor], Tensor] | None = None,
    shared: bool = False,
) -> list[dict[str, int | float]]:
    """Trains, and returns one row per epoch: `epoch` and the mean of what `step` returned (its `loss` is minimised).

    `trained` holds all that changes; `step` maps the rows of a batch and a generator to its loss. Every epoch draws
    from a generator of its own (seed, epoch), so a run continued from a checkpoint ends with the same bytes. A loss
    that is not finite stops the run with a ValueError and leaves the checkpoint of the last good epoch in `folder`.
    With `load`, `step` also gets what it makes of the rows, read while the batch before is computed. With `shared`, the
    values of `step` are this process's part of a sum over all processes; without, every process computes the same.
    """
    rates = [group["lr"] for group in optimizer.param_groups]
    history = checkpoint.resume(folder, trained, optimizer)
    for epoch in range(len(history), schedule.epochs):
        generator = torch.Generator().manual_seed(seed * 100_003 + epoch)
        start_epoch(epoch)
        totals: dict[str, Tensor] = {}
        pieces = batches(count, batch, generator)
        loaded = ahead(pieces, load or (lambda rows: None))
        shown = progress(loaded, f"epoch {epoch + 1}/{schedule.epochs}", len(pieces), unit="batch")
        for i, (rows, images) in enumerate(shown):
            factor = schedule.factor(epoch + i / len(pieces))
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * factor
            values = step(rows, generator, images) if load else step(rows, generator)
            optimizer.zero_grad(set_to_none=True)
            values["loss"].backward()
            if shared:
                trainable = [p for group in optimizer.param_groups for p in group["params"]]
                processes.add_up([p.grad for p in trainable if p.grad is not None])
            optimizer.step()
            # Summed on the device: reading a number here would make every step wait for the accelerator.
            for name, value in values.items():
                totals[name] = totals.get(name, 0) + value.detach() * len(rows) / count
        if shared:
            sums = torch.stack([total.double() for total in totals.values()])
            processes.add_up([sums])
            totals = dict(zip(totals, sums, strict=True))
        row = {"epoch": epoch + 1} | {name: float(total) for name, total in totals.items()}
        if not math.isfinite(row["loss"]):
            kept = f"the state after epoch {epoch} is kept in {folder}" if epoch else "no epoch had finished"
            raise ValueError(f"the loss became {row['loss']} in epoch {epoch + 1}; {kept}: lower the learning rate")
        history.append(row)
        if processes.rank() == 0:
            checkpoint.save(folder, trained, optimizer, history)
        log.info(
            "epoch %d/%d: %s",
            epoch + 1,
            schedule.epochs,
            ", ".join(f"{n} {v:.4f}" for n, v in row.items() if n != "epoch"),
        )
    return history
