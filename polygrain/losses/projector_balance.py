"""Projector training balance: heads that still confuse images weigh more in the next epoch (MPCL, Eq. 3)."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def projector_weights(accuracies: Float[Tensor, " head"] | Sequence[float], epsilon: float) -> Float[Tensor, " head"]:
    """softmax((1 - accuracy) / epsilon) over the heads; they sum to 1.

    >>> [round(float(w), 3) for w in projector_weights([0.70, 0.75, 0.80, 0.85], 0.5)]
    [0.289, 0.261, 0.236, 0.214]
    """
    return torch.softmax((1 - torch.as_tensor(accuracies, dtype=torch.float32)) / epsilon, 0)
