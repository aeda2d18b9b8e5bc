"""Which classes train and which choose the model: the three protocols of metric learning (GSP, 1.6)."""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Int
from pydantic import Field, model_validator

from stages.core.runner.schema import Section


class Protocol(Section):
    """`fair`: every fold of the training classes chooses once, the test classes never do (Musgrave et al., 2020).
    `conventional`: all training classes train, and the test classes choose; optimistic, but what most papers report.
    `tuning`: one fold chooses and is the result; the test classes are left alone.
    """

    kind: Literal["fair", "conventional", "tuning"]
    folds: int = Field(ge=1, description="class-disjoint parts of the training classes; 1 for `conventional`")
    repeats: int = Field(ge=1, description="runs of each fold, from different seeds")

    @model_validator(mode="after")
    def folds_fit(self) -> "Protocol":
        if (self.folds == 1) != (self.kind == "conventional"):
            raise ValueError(f"folds is {self.folds} for {self.kind}; needed: 1 for conventional, 2 or more for others")
        return self


class Fold(NamedTuple):
    """Training and validation classes; no validation class means that the test images choose."""

    train: Int[np.ndarray, " class"]
    validation: Int[np.ndarray, " class"]


def folds(labels: Int[np.ndarray, " image"], protocol: Protocol) -> list[Fold]:
    """The folds to run. Parts are contiguous blocks of the sorted training classes, the first fold holds out the last.

    ValueError where a fold would be left with fewer than two classes on either side.
    """
    classes = np.unique(labels)
    if protocol.kind == "conventional":
        if len(classes) < 2:
            raise ValueError(f"{len(classes)} training classes; metric learning needs two or more")
        return [Fold(classes, classes[:0])]
    blocks = np.array_split(classes, protocol.folds)
    if min(map(len, blocks)) < 2:
        raise ValueError(
            f"{len(classes)} training classes in {protocol.folds} folds leave {min(map(len, blocks))} in one; "
            f"each needs two or more: at most {len(classes) // 2} folds"
        )
    made = [Fold(np.setdiff1d(classes, block), block) for block in reversed(blocks)]
    return made[:1] if protocol.kind == "tuning" else made
