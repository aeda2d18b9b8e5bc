"""Training batches of m images from each of some classes, as pair-based losses need them."""

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor


class ClassBatches:
    """Draws rows; a class with fewer images than are asked for gives all of them, and some again.

    ValueError where there are fewer classes than a batch holds, or where a class of one image cannot make a pair.
    """

    def __init__(self, labels: Int[np.ndarray, " image"], classes: int, per_class: int, names: list[str]) -> None:
        known, counts = np.unique(labels, return_counts=True)
        if len(known) < classes:
            raise ValueError(
                f"a batch of {classes} classes cannot be drawn from {len(known)} training classes: "
                "lower batch_classes, or use fewer folds"
            )
        single = [names[label] for label in known[counts == 1]]
        if single and per_class > 1:
            raise ValueError(
                f"{len(single)} classes have a single image ({', '.join(single[:3])}), which has no pair: "
                "remove them, or set per_class to 1 with a proxy loss"
            )
        self.classes, self.per_class = classes, per_class
        self.rows = [torch.from_numpy(np.flatnonzero(labels == label)) for label in known]

    def draw(self, generator: torch.Generator) -> Int[Tensor, " image"]:
        """Rows of one batch, class by class."""
        chosen = torch.randperm(len(self.rows), generator=generator)[: self.classes].tolist()
        return torch.cat([self.some(self.rows[i], generator) for i in chosen])

    def some(self, rows: Int[Tensor, " own"], generator: torch.Generator) -> Int[Tensor, " image"]:
        rounds = -(-self.per_class // len(rows))
        order = [torch.randperm(len(rows), generator=generator) for _ in range(rounds)]
        return rows[torch.cat(order)[: self.per_class]]
