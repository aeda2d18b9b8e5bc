"""Training of all runs of a study, step by step, with checkpoints that outlive a kill."""

import time
from pathlib import Path

import torch
from torch import nn

from stages.core import checkpoint
from stages.core.adaptation import Lanes, Sides, gradient, ranks
from stages.core.asymmetric_recall import recall_of
from stages.core.runner.progress import progress

SECONDS_BETWEEN_CHECKPOINTS = 30.0


class Training(nn.Module):
    """W of every run, and what was seen on the way: the loss at each step, aR@k (k = 1, 2, ...) at each evaluation."""

    def __init__(self, weights: torch.Tensor, steps: int, every: int, largest_k: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(weights)
        self.evaluated = sorted({*range(every, steps + 1, every), steps})
        self.register_buffer("losses", torch.full((steps, len(weights)), torch.nan, dtype=torch.float64))
        shape = (len(self.evaluated), len(weights), largest_k)
        self.register_buffer("recalls", torch.full(shape, torch.nan, dtype=torch.float64))


def train(state: Training, train_sides: Sides, test: Sides, sigma: float, learning_rate: float, folder: Path) -> None:
    """Takes all full-batch steps of all runs, from the start or from the checkpoint in `folder`.

    Adam works element by element, so one optimiser over all runs takes the steps that one for each would take. Nothing
    is drawn here, so a continued training ends with the same bytes. ValueError where a loss is not finite.
    """
    steps, largest_k = len(state.losses), state.recalls.shape[2]
    optimizer = torch.optim.Adam([state.weights], lr=learning_rate, fused=True)
    history = checkpoint.resume(folder, state, optimizer)
    saved = time.monotonic()
    with Lanes(state.weights.device) as lanes:
        for step in progress(range(len(history), steps), f"sigma {sigma:g}", unit="step"):
            losses, state.weights.grad = gradient(state.weights.detach(), train_sides, sigma, lanes)
            optimizer.step()
            state.losses[step] = losses
            history.append({"epoch": step + 1})
            if step + 1 in state.evaluated:
                found = ranks(state.weights.detach(), test, lanes)
                state.recalls[state.evaluated.index(step + 1)] = recall_of(found, range(1, largest_k + 1))
                if not losses.isfinite().all():
                    raise ValueError(f"a loss is not finite at step {step + 1}: lower learning_rate or sigma")
            if time.monotonic() - saved >= SECONDS_BETWEEN_CHECKPOINTS:
                checkpoint.save(folder, state, optimizer, history)
                saved = time.monotonic()
