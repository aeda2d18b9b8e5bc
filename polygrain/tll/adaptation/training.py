"""The learned part of visual analogies: a = ReLU(W d), many runs trained side by side, each on a split of its own.

A step moves W by Adam along the gradient of `symmetric_softmax` over all training pairs of the run (Risser-Maroix et
al., sections 3.3 and 4.2). The runs are slices of the same tensors, and the gradient is written out. The plain version
is autograd through `normalize(relu(d @ W.T))` and two `cross_entropy` calls, one run after another.
"""

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from polygrain.compute.blocks import blocks, blocks_within
from polygrain.losses.symmetric_softmax import symmetric_softmax
from polygrain.runner.progress import progress
from polygrain.tll.adaptation.descriptors import Sides
from polygrain.tll.adaptation.recall import better_ranks, recall_of
from polygrain.training import checkpoint

EPSILON = 1e-8
SECONDS_BETWEEN_CHECKPOINTS = 30.0
BLOCK_BYTES = 2 * 2**20
# What the activations and similarities of the runs worked on together may take: about a cache, or a share of a GPU.
TOGETHER_BYTES = {"cpu": 8 * 2**20, "cuda": 4 * 2**30}


class Lanes(AbstractContextManager):
    """Works on all runs, a part of them in each thread: one thread for each core of a CPU, one for a GPU."""

    def __init__(self, device: torch.device) -> None:
        self.threads = torch.get_num_threads()
        self.count = self.threads if device.type == "cpu" else 1
        self.pool = ThreadPoolExecutor(self.count, initializer=torch.set_num_threads, initargs=(1,))

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown()
        torch.set_num_threads(self.threads)

    def each(self, work: Callable[[int], object], runs: int, together: int) -> None:
        """Calls `work(slice)` for slices of at most `together` runs that make up all of them."""
        size = min(together, -(-runs // self.count))
        if self.count == 1 or runs == 1:
            for part in blocks(runs, size):
                work(part)
        else:
            list(self.pool.map(work, blocks(runs, size)))


def together(pairs: int, hidden: int, device: torch.device) -> int:
    """How many runs fit into one call: six tensors of activations and one of similarities each."""
    return max(1, TOGETHER_BYTES[device.type] // (4 * pairs * (6 * hidden + pairs)))


def activate(
    descriptors: Float[Tensor, "run pair dim"], weights: Float[Tensor, "run hidden dim"]
) -> tuple[Float[Tensor, "run pair hidden"], Float[Tensor, "run pair 1"]]:
    """ReLU(W d) brought to unit length, and one over its length before; a row that is all zero stays all zero."""
    runs, pairs, _ = descriptors.shape
    units = descriptors.new_empty((runs, pairs, weights.shape[1]))
    inverse = descriptors.new_empty((runs, pairs, 1))
    for block in blocks_within(pairs, 4 * runs * weights.shape[1], BLOCK_BYTES):
        hidden = torch.bmm(descriptors[:, block], weights.mT, out=units[:, block]).relu_()
        lengths = torch.linalg.vector_norm(hidden, dim=2, keepdim=True).clamp_min_(EPSILON)
        hidden.mul_(torch.reciprocal(lengths, out=inverse[:, block]))
    return units, inverse


def pull_back(
    gradient: Float[Tensor, "run pair hidden"],
    units: Float[Tensor, "run pair hidden"],
    inverse: Float[Tensor, "run pair 1"],
    descriptors: Float[Tensor, "run pair dim"],
    total: Float[Tensor, "run hidden dim"],
) -> None:
    """Adds to `total` the gradient for W, given that for what `activate` returned; overwrites the latter."""
    runs, pairs, hidden = units.shape
    for block in blocks_within(pairs, 4 * runs * hidden, BLOCK_BYTES):
        part, unit = gradient[:, block], units[:, block]
        part.addcmul_(unit, (part * unit).sum(2, keepdim=True), value=-1).mul_(inverse[:, block])
        # Zero where the ReLU is closed, in one pass.
        torch.ops.aten.threshold_backward.grad_input(part, unit, 0, grad_input=part)
        total.baddbmm_(part.mT, descriptors[:, block])


def gradient(
    weights: Float[Tensor, "run hidden dim"], train: Sides, sigma: float, lanes: Lanes
) -> tuple[Float[Tensor, " run"], Float[Tensor, "run hidden dim"]]:
    """The loss of each run, mean over views, and its gradient for W."""
    runs, views, pairs, _ = train.left.shape
    losses, total = weights.new_zeros(runs), torch.zeros_like(weights)

    @torch.no_grad()  # each thread has a mode of its own
    def work(part: slice) -> None:
        for view in range(views):
            sides = [side[part, view] for side in train]
            (left, left_inverse), (right, right_inverse) = (activate(side, weights[part]) for side in sides)
            loss, left_gradient, right_gradient = symmetric_softmax(left, right, sigma)
            losses[part] += loss / views
            pull_back(left_gradient, left, left_inverse, sides[0], total[part])
            pull_back(right_gradient, right, right_inverse, sides[1], total[part])

    lanes.each(work, runs, together(pairs, weights.shape[1], weights.device))
    return losses, total.div_(views)


def ranks(weights: Float[Tensor, "run hidden dim"], test: Sides, lanes: Lanes) -> Int[Tensor, "run pair"]:
    """The better of the two ranks of each test pair in each run, by the original images."""
    runs, _, pairs, _ = test.left.shape
    better = torch.empty((runs, pairs), dtype=torch.int64, device=weights.device)

    @torch.no_grad()
    def work(part: slice) -> None:
        better[part] = better_ranks(*(activate(side[part, 0], weights[part])[0] for side in test))

    lanes.each(work, runs, together(pairs, weights.shape[1], weights.device))
    return better


def starts(seeds: list[int], hidden: int, dim: int) -> Float[Tensor, "run hidden dim"]:
    """A start for each seed, from the law of `nn.Linear(dim, hidden, bias=False)`."""
    weights = torch.empty(len(seeds), hidden, dim)
    for matrix, seed in zip(weights, seeds, strict=True):
        nn.init.kaiming_uniform_(matrix, math.sqrt(5), generator=torch.Generator().manual_seed(seed))
    return weights


class Training(nn.Module):
    """W of every run, with the loss at each step and aR@k (k = 1, 2, ...) at each evaluation."""

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
    with Lanes(state.weights.device) as lanes:

        def mean(done: int) -> dict[str, float]:
            """The loss of the last step, over all runs."""
            return {"loss": float(state.losses[len(history) - 1].mean())}

        for step in progress(range(len(history), steps), f"sigma {sigma:g}", unit="step", measure=mean):
            losses, state.weights.grad = gradient(state.weights.detach(), train_sides, sigma, lanes)
            optimizer.step()
            state.losses[step] = losses
            history.append({"epoch": step + 1})
            if step + 1 in state.evaluated:
                better = ranks(state.weights.detach(), test, lanes)
                state.recalls[state.evaluated.index(step + 1)] = recall_of(better, range(1, largest_k + 1))
                if not losses.isfinite().all():
                    raise ValueError(f"a loss is not finite at step {step + 1}: lower learning_rate or sigma")
            if time.monotonic() - saved >= SECONDS_BETWEEN_CHECKPOINTS:
                checkpoint.save(folder, state, optimizer, history)
                saved = time.monotonic()
