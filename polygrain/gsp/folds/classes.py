"""Classes that train and classes that select the model: the three protocols of metric learning (GSP, 1.6)."""

from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from pydantic import Field, model_validator
from torch import Tensor

from polygrain.config.schema import Section


class Protocol(Section):
    """`fair`: each fold of the training classes selects once; test classes never do (Musgrave et al., 2020).
    `conventional`: all training classes train and the test classes select: optimistic, but what most papers report.
    `tuning`: one fold selects and is the result; test classes are not used.
    """

    kind: Literal["fair", "conventional", "tuning"] = Field(description="classes that train, and classes that choose")
    folds: int = Field(ge=1, le=1000, description="class-disjoint parts of the training classes; 1 for `conventional`")
    chosen_by: Literal["map_at_r", "recall_at_1"] = Field(description="the validation score of the state that is kept")

    @model_validator(mode="after")
    def folds_fit(self) -> "Protocol":
        if (self.folds == 1) != (self.kind == "conventional"):
            raise ValueError(f"folds is {self.folds} for {self.kind}; needed: 1 for conventional, 2 or more for others")
        return self

    @property
    def trained(self) -> int:
        """Folds that train."""
        return 1 if self.kind == "tuning" else self.folds


class Fold(NamedTuple):
    """Training and validation classes; without validation classes the test images select."""

    train: Int[np.ndarray, " class"]
    validation: Int[np.ndarray, " class"]


def folds(labels: Int[np.ndarray, " image"], protocol: Protocol) -> list[Fold]:
    """The folds to run: contiguous blocks of the sorted training classes, the last block held out first.

    ValueError for fewer than two classes in a block.
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
    all_folds = [Fold(np.setdiff1d(classes, block), block) for block in reversed(blocks)]
    return all_folds[: protocol.trained]


class ClassBatches:
    """Draws batches of `per_class` rows of each of `classes` classes; small classes repeat rows.

    ValueError for fewer classes than a batch needs, and for pairs from a class of one image.
    """

    def __init__(self, labels: Int[np.ndarray, " image"], classes: int, per_class: int, names: list[str]) -> None:
        present, counts = np.unique(labels, return_counts=True)
        if len(present) < classes:
            raise ValueError(
                f"a batch of {classes} classes cannot be drawn from {len(present)} training classes: "
                "lower batch_classes, or use fewer folds"
            )
        single = [names[label] for label in present[counts == 1]]
        if single and per_class > 1:
            raise ValueError(
                f"{len(single)} classes have a single image ({', '.join(single[:3])}), which has no pair: "
                "remove them, or set per_class to 1 with a proxy loss"
            )
        self.classes, self.per_class = classes, per_class
        self.rows = [torch.from_numpy(np.flatnonzero(labels == label)) for label in present]

    def draw(self, generator: torch.Generator) -> Int[Tensor, " image"]:
        """Rows of one batch, class by class."""
        chosen = torch.randperm(len(self.rows), generator=generator)[: self.classes].tolist()
        return torch.cat([self.some(self.rows[i], generator) for i in chosen])

    def some(self, rows: Int[Tensor, " own"], generator: torch.Generator) -> Int[Tensor, " image"]:
        rounds = -(-self.per_class // len(rows))
        order = [torch.randperm(len(rows), generator=generator) for _ in range(rounds)]
        return rows[torch.cat(order)[: self.per_class]]
