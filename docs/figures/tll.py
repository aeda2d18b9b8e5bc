"""TLL on drawn numbers: cosines of 60 pairs before and after one matrix is learned on 140 others."""

from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from docs.figures.style import GREEN, SOFT, panels, save

SHOWN, TRAIN, DIM, HIDDEN = 60, 140, 48, 192


def pairs() -> tuple[torch.Tensor, torch.Tensor]:
    """Both sides of every pair share few directions; the rest of each side is its own and louder."""
    rng = np.random.default_rng(2)
    common = rng.normal(size=(SHOWN + TRAIN, 6)) @ rng.normal(size=(6, DIM))
    sides = [common + 1.6 * rng.normal(size=(SHOWN + TRAIN, 14)) @ rng.normal(size=(14, DIM)) for _ in range(2)]
    left, right = (torch.tensor(side / DIM**0.5, dtype=torch.float64) for side in sides)
    return left, right


def cosines(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return functional.normalize(left, dim=1) @ functional.normalize(right, dim=1).T


def learn(left: torch.Tensor, right: torch.Tensor, sigma: float = 15.0, steps: int = 120) -> torch.Tensor:
    """W by full-batch Adam on the mean of both softmax directions."""
    start = torch.Generator().manual_seed(0)
    matrix = (torch.rand(HIDDEN, DIM, generator=start, dtype=torch.float64) * 2 - 1) / DIM**0.5
    matrix.requires_grad_()
    optimizer, target = torch.optim.Adam([matrix], 0.01), torch.arange(len(left))
    for _ in range(steps):
        logits = sigma * cosines((left @ matrix.T).relu(), (right @ matrix.T).relu())
        loss = (functional.cross_entropy(logits, target) + functional.cross_entropy(logits.T, target)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return matrix.detach()


def recall(similarity: torch.Tensor) -> float:
    """aR@1: pairs that are nearest to each other in either direction."""
    own = torch.arange(len(similarity))
    return float(((similarity.argmax(0) == own) | (similarity.argmax(1) == own)).double().mean())


def draw(target: Path) -> None:
    left, right = pairs()
    matrix = learn(left[SHOWN:], right[SHOWN:])
    before = cosines(left[:SHOWN], right[:SHOWN])
    after = cosines((left[:SHOWN] @ matrix.T).relu(), (right[:SHOWN] @ matrix.T).relu())
    figure, axes = panels(7.6, 3.5, 2)
    shown = ((before, "before: cosine of d"), (after, "after: cosine of ReLU(W d)"))
    for axis, (values, title) in zip(axes, shown, strict=True):
        axis.imshow(values.numpy(), cmap="Greens", vmin=float(values.mean()), interpolation="nearest")
        axis.set(xticks=[], yticks=[], xlabel="right images", ylabel="left images")
        axis.set_title(f"{title}\n", color=GREEN)
        axis.text(0.5, 1.02, f"aR@1 {100 * recall(values):.0f} %", transform=axis.transAxes, ha="center", color=SOFT)
    save(figure, target)
