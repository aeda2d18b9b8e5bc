"""The objective over all heads (MPCL, Eq. 4), its logged values, and the balance between heads.

    L = 1/M sum_m ( w^m L^m + lambda PCR^m )

As printed, the balanced weights sum to 1 and are divided by M once more: with balance the contrastive part is M times
smaller, and PCR M times stronger beside it, than without. `literal` does so; `neutral` multiplies the weights by M.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from polygrain.compute import processes
from polygrain.losses.projector_balance import projector_weights
from polygrain.losses.projector_contrast import head_cosines, projector_contrast
from polygrain.mpcl.pretraining.heads import Measured

Balance = Literal["none", "literal", "neutral"]


class HeadBalance(nn.Module):
    """The weight of each head in this epoch, from its mean accuracy in the last; equal weights in the first."""

    weights: Tensor
    accuracies: Tensor
    spread: Tensor
    steps: Tensor

    def __init__(self, heads: int, balance: Balance, epsilon: float) -> None:
        super().__init__()
        self.balance, self.epsilon = balance, epsilon
        share = 1 / heads if balance == "literal" else 1.0
        self.register_buffer("weights", torch.full((heads,), share))
        self.register_buffer("accuracies", torch.zeros(heads))
        self.register_buffer("spread", torch.zeros(()))
        self.register_buffer("steps", torch.zeros(()))

    @torch.no_grad()
    def record(self, accuracies: Float[Tensor, " head"], spread: Float[Tensor, ""]) -> None:
        """Adds a step's values, the mean over processes. No number is read here, so no step waits for the device."""
        means = torch.cat([accuracies, spread[None]]) / processes.count()
        processes.add_up([means])
        self.accuracies += means[:-1]
        self.spread += means[-1]
        self.steps += 1

    @torch.no_grad()
    def next_epoch(self, epoch: int, least: float) -> None:
        """Ends epoch `epoch` (from 1) and sets the next one's weights.

        ValueError if the features have collapsed: a mean spread below `least`.
        """
        steps = float(self.steps)
        if not steps:
            return
        spread = float(self.spread) / steps
        if spread < least:
            raise ValueError(
                f"the features collapsed in epoch {epoch}: their spread is {spread:.2g}, below least_spread ({least}): "
                "lower the learning rate, lengthen the warm-up, or raise the batch"
            )
        accuracies = (self.accuracies / steps).clamp(0, 1)
        if self.balance != "none":
            factor = len(accuracies) if self.balance == "neutral" else 1
            self.weights.copy_(factor * projector_weights(accuracies, self.epsilon))
        for total in (self.accuracies, self.spread, self.steps):
            total.zero_()


def evenness(features: Float[Tensor, "batch dim"]) -> Float[Tensor, ""]:
    """The standard deviation of unit features over the batch, times sqrt(dim): 1 = evenly spread, 0 = collapsed."""
    unit = nn.functional.normalize(features.float(), dim=1)
    return unit.std(0, correction=0).mean() * unit.shape[1] ** 0.5


def combine(
    measured: Measured, weights: Float[Tensor, " head"], contrast_weight: float, extra: Tensor | float = 0.0
) -> dict[str, Tensor]:
    """`loss` (Eq. 4, plus `extra`) and all that is logged: per head and per pair of heads, from 1."""
    contrast = projector_contrast(measured.projections)
    loss = (weights * measured.losses).mean() + contrast_weight * contrast + extra
    values = {"loss": loss, "contrast": contrast, "spread": evenness(measured.features.detach())}
    for m in range(len(weights)):
        values |= {f"loss_{m + 1}": measured.losses[m], f"accuracy_{m + 1}": measured.accuracies[m]}
        values[f"weight_{m + 1}"] = weights[m]
    cosines = head_cosines(measured.projections.detach())
    for i in range(len(weights)):
        for j in range(i + 1, len(weights)):
            values[f"cosine_{i + 1}_{j + 1}"] = cosines[i, j]
    return values


def columns(heads: int) -> list[str]:
    """The names that `combine` logs, in the order of the history file."""
    numbers = range(1, heads + 1)
    names = ["epoch", "loss", "contrast", "spread"]
    names += [f"{name}_{m}" for name in ("loss", "accuracy", "weight") for m in numbers]
    return names + [f"cosine_{i}_{j}" for i in numbers for j in numbers if i < j]
