"""The learned part of visual analogies: a = ReLU(W d), several runs at once, each on a split of its own.

A step moves W by Adam along the gradient of `symmetric_softmax` over all training pairs of the run (Risser-Maroix et
al., sections 3.3 and 4.2).
"""

import math
import time
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import normalize

from polygrain.losses.symmetric_softmax import symmetric_softmax
from polygrain.runner.progress import progress
from polygrain.tll.adaptation.descriptors import Sides
from polygrain.tll.adaptation.recall import better_ranks, recall_of
from polygrain.training import checkpoint

SECONDS_BETWEEN_CHECKPOINTS = 30.0


def activate(
    descriptors: Float[Tensor, "pair dim"], weights: Float[Tensor, "hidden dim"]
) -> Float[Tensor, "pair hidden"]:
    """ReLU(W d) brought to unit length; a row that is all zero stays all zero."""
    return normalize(torch.relu(descriptors @ weights.T), dim=1, eps=1e-8)


def gradient(
    weights: Float[Tensor, "run hidden dim"], train: Sides, sigma: float
) -> tuple[Float[Tensor, " run"], Float[Tensor, "run hidden dim"]]:
    """The loss of each run, mean over views, and its gradient for W, a run after the other to spare memory."""
    losses, gradients = [], []
    for own, left, right in zip(weights, *train, strict=True):
        leaf = own.detach().requires_grad_()
        views = [
            symmetric_softmax(activate(x, leaf), activate(y, leaf), sigma) for x, y in zip(left, right, strict=True)
        ]
        loss = torch.stack(views).mean()
        gradients.append(torch.autograd.grad(loss, leaf)[0])
        losses.append(loss.detach())
    return torch.stack(losses), torch.stack(gradients)


@torch.no_grad()
def ranks(weights: Float[Tensor, "run hidden dim"], test: Sides) -> Int[Tensor, "run pair"]:
    """The better of the two ranks of each test pair in each run, by the original images."""
    of_runs = zip(weights, *test, strict=True)
    return torch.stack([better_ranks(activate(left[0], own), activate(right[0], own)) for own, left, right in of_runs])


def starts(seeds: list[int], hidden: int, dim: int) -> Float[Tensor, "run hidden dim"]:
    """A start for each seed, from the law of `nn.Linear(dim, hidden, bias=False)`."""
    weights = torch.empty(len(seeds), hidden, dim)
    for matrix, seed in zip(weights, seeds, strict=True):
        nn.init.kaiming_uniform_(matrix, math.sqrt(5), generator=torch.Generator().manual_seed(seed))
    return weights


class Training(nn.Module):
    """W of every run, with the loss at each step and aR@k (k = 1, 2, ...) at each evaluation."""

    losses: torch.Tensor
    recalls: torch.Tensor

    def __init__(self, weights: torch.Tensor, steps: int, every: int, largest_k: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(weights)
        self.evaluated = sorted({*range(every, steps + 1, every), steps})
        self.register_buffer("losses", torch.full((steps, len(weights)), torch.nan, dtype=torch.float64))
        shape = (len(self.evaluated), len(weights), largest_k)
        self.register_buffer("recalls", torch.full(shape, torch.nan, dtype=torch.float64))


def train(state: Training, train_sides: Sides, test: Sides, sigma: float, learning_rate: float, folder: Path) -> None:
    """Takes all full-batch steps of all runs, from the start or from the checkpoint in `folder`.

    Adam works element by element, so one optimiser serves all runs. Nothing is drawn here, so a continued training ends
    with the same bytes. ValueError where a loss is not finite.
    """
    steps, largest_k = len(state.losses), state.recalls.shape[2]
    optimizer = torch.optim.Adam([state.weights], lr=learning_rate, fused=True)
    history = checkpoint.resume(folder, state, optimizer)
    saved = time.monotonic()

    def mean(done: int) -> dict[str, float]:
        """The loss of the last step, over all runs."""
        return {"loss": float(state.losses[len(history) - 1].mean())}

    for step in progress(range(len(history), steps), f"sigma {sigma:g}", unit="step", measure=mean):
        losses, state.weights.grad = gradient(state.weights, train_sides, sigma)
        optimizer.step()
        state.losses[step] = losses
        history.append({"epoch": step + 1})
        if step + 1 in state.evaluated:
            better = ranks(state.weights, test)
            state.recalls[state.evaluated.index(step + 1)] = recall_of(better, range(1, largest_k + 1))
            if not losses.isfinite().all():
                raise ValueError(f"a loss is not finite at step {step + 1}: lower learning_rate or sigma")
        if time.monotonic() - saved >= SECONDS_BETWEEN_CHECKPOINTS:
            checkpoint.save(folder, state, optimizer, history)
            saved = time.monotonic()
