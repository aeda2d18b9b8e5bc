"""What a last layer may learn without labels: what teachers give of the same images, and how a collection smooths it.

A teacher is the encoder itself at its most careful, or a larger encoder. One linear layer behind the encoder's outputs
learns to give that in one pass, by ridge regression: no network trains.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32
from sklearn.linear_model import Ridge

from polygrain.compute.vectors import unit_rows
from polygrain.retrieval import whitening
from polygrain.retrieval.smoothing import Smoothing, smooth_as
from polygrain.store import arrays

Targets = Float32[np.ndarray, "_ _"]  # image, dim: each teacher has its own
# Of the mean variance of the inputs. From a third of this to three times as much nothing changes on photographs.
PENALTY = 0.003
LEAST = 1e-6  # for inputs that are all alike


class Lesson(NamedTuple):
    """Whose embeddings are learnt (`by`, a teacher or `all teachers`), and the share of smoothed ones among them."""

    by: str
    smoothed: float

    def __str__(self) -> str:
        words = {0.0: "", 1.0: ", smoothed"}.get(self.smoothed, f", smoothed by {self.smoothed:g}")
        return f"taught by {self.by}{words}"


def read_targets(folder: Path, teachers: Sequence[str]) -> dict[str, Targets]:
    """What the first teacher gives of each training image, and what all of them give side by side, half-whitened."""
    given = [arrays.open(folder / name / "embeddings.zarr")[:] for name in teachers]
    result = dict(zip(teachers[:1], given[:1], strict=True))
    if len(given) > 1:
        joined = unit_rows(np.concatenate(given, 1))
        dim = max(part.shape[1] for part in given)
        result["all teachers"] = whitening.apply(whitening.fit(joined, dim, "half"), joined)
    return result


def lessons(
    targets: Mapping[str, Targets], tasks: np.ndarray, smoothings: Mapping[str, Smoothing], shares: Sequence[float]
) -> Iterator[tuple[Lesson, Targets]]:
    """The targets of each lesson: mixed with what they become if each task is smoothed by its own neighbours."""
    for by, given in targets.items():
        result = given.copy()
        for task, smoothing in smoothings.items() if any(shares) else ():
            own = tasks == task
            result[own] = smooth_as(given[own], smoothing)
        for share in shares:
            yield Lesson(by, share), unit_rows((1 - share) * given + share * result)


def learn(inputs: Float32[np.ndarray, "image input"], targets: Targets) -> tuple[np.ndarray, np.ndarray]:
    """Weight `dim input` and bias of the linear layer that comes nearest to the targets."""
    penalty = PENALTY * len(inputs) * float(inputs.var(0, dtype=np.float64).mean())
    layer = Ridge(alpha=max(penalty, LEAST)).fit(inputs, targets)
    return layer.coef_.astype(np.float32), layer.intercept_.astype(np.float32)
