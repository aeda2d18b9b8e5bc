"""Projector training balance: heads that still confuse images weigh more in the next epoch (MPCL, Eq. 3)."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def projector_weights(accuracies: Float[Tensor, " head"] | Sequence[float], epsilon: float) -> Float[Tensor, " head"]:
    """softmax((1 - accuracy) / epsilon) over the heads; they sum to 1.

    ValueError for accuracies outside 0..1, such as percent, and for an epsilon that is not positive.

    >>> [round(float(w), 3) for w in projector_weights([0.70, 0.75, 0.80, 0.85], 0.5)]
    [0.289, 0.261, 0.236, 0.214]
    """
    values = torch.as_tensor(accuracies, dtype=torch.float32)
    if values.ndim != 1 or not len(values) or not bool(((values >= 0) & (values <= 1)).all()):
        raise ValueError(f"accuracies are {accuracies}; needed is a fraction between 0 and 1 for each head")
    if not epsilon > 0:
        raise ValueError(f"epsilon is {epsilon}; it divides the errors, so it must be positive")
    return torch.softmax((1 - values) / epsilon, 0)
