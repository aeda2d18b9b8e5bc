"""Training that validates every few steps, stops when the score no longer rises, and ends in its best state."""

import copy
import logging
import math
from collections.abc import Callable
from pathlib import Path

import torch
from pydantic import Field
from torch import Tensor, nn

from polygrain.config.schema import Count, Section, Steps
from polygrain.runner.progress import Rounds
from polygrain.training import checkpoint

log = logging.getLogger(__name__)
History = list[dict[str, int | float]]
CLIP = 10.0


class Stopping(Section):
    """When to validate, when to lower the learning rate, and when to stop."""

    every: Steps = Field(description="steps between two validations")
    patience: Count = Field(description="validations without a gain before it stops")
    least_gain: float = Field(ge=0, lt=1, description="smallest rise of the validation score that counts; a fraction")
    plateau: Count | None = Field(description="validations without a gain before the rate falls; null: never")
    factor: float = Field(gt=0, le=1, description="multiplies the rate at a plateau")
    longest: Steps = Field(description="steps at most")


def best(history: History, least_gain: float) -> int:
    """The position of the best row: the last that beats the best before it by `least_gain`."""
    position = 0
    for i, row in enumerate(history):
        if row["score"] > history[position]["score"] + least_gain:
            position = i
    return position


def rate_factor(history: History, stopping: Stopping) -> float:
    """The factor on the learning rate after this history: `factor` once per plateau."""
    plateaus = waited = 0
    for i in range(1, len(history) if stopping.plateau else 0):
        waited = 0 if best(history[: i + 1], stopping.least_gain) == i else waited + 1
        if waited == stopping.plateau:
            plateaus, waited = plateaus + 1, 0
    return stopping.factor**plateaus


def is_over(history: History, stopping: Stopping) -> bool:
    """Whether the steps or the patience are used up."""
    if not history:
        return False
    waited = len(history) - 1 - best(history, stopping.least_gain)
    return history[-1]["step"] >= stopping.longest or waited >= stopping.patience


def measured(row: dict[str, int | float]) -> dict[str, int | float]:
    return {name: row[name] for name in ("loss", "score")}


def fit(
    current: nn.Module,
    optimizer: torch.optim.Optimizer,
    stopping: Stopping,
    step: Callable[[int, torch.Generator], Tensor],
    validate: Callable[[], float],
    seed: int,
    folder: Path,
) -> History:
    """Trains `current` and leaves it in its best state by `validate`; a row {step, loss, score, rate} per validation.

    `step` maps its number and a generator to a loss. A run continued from the checkpoint in `folder` ends with the same
    bytes, on a GPU up to rounding: whether to stop and the rate follow from the rows, and each period has its own
    generator. ValueError for a loss that is not finite.
    """
    trained = nn.ModuleDict({"current": current, "best": copy.deepcopy(current)})
    rates = [group["lr"] for group in optimizer.param_groups]
    history = checkpoint.resume(folder, trained, optimizer)
    longest = math.ceil(stopping.longest / stopping.every)
    rounds = Rounds(f"{folder.name}, validation", stopping.every, "step", longest, len(history))
    for number, row in enumerate(history):
        log.info("%s", rounds.line(number, values=measured(row)))
    while not is_over(history, stopping):
        done = int(history[-1]["step"]) if history else 0
        generator = torch.Generator().manual_seed(seed * 100_003 + len(history))
        torch.manual_seed(seed * 100_003 + len(history))  # dropout draws from the global generator
        factor, total = rate_factor(history, stopping), torch.zeros(())
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * factor
        steps = min(stopping.every, stopping.longest - done)
        current.train()
        for number in rounds.over(range(done, done + steps), len(history)):
            loss = step(number, generator)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(current.parameters(), CLIP)
            optimizer.step()
            total = total.to(loss) + loss.detach()
        current.eval()
        mean = float(total) / steps
        if not math.isfinite(mean):
            raise ValueError(f"the loss of {folder.name} became {mean} before step {done + steps}: lower the rate")
        history.append({"step": done + steps, "loss": mean, "score": validate(), "rate": factor})
        if best(history, stopping.least_gain) == len(history) - 1:
            trained["best"].load_state_dict(current.state_dict())
        checkpoint.save(folder, trained, optimizer, history)
        log.info("%s", rounds.line(len(history) - 1, values=measured(history[-1])))
    top, last = history[best(history, stopping.least_gain)], history[-1]["step"]
    log.info("%s: best %.2f %% at step %d of %d", folder.name, 100 * top["score"], top["step"], last)
    current.load_state_dict(trained["best"].state_dict())
    return history
