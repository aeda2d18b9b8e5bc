"""The symmetric softmax loss over a whole similarity matrix (Risser-Maroix et al., Eq. 1)."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy


def symmetric_softmax(
    left: Float[Tensor, "pair dim"], right: Float[Tensor, "pair dim"], sigma: float
) -> Float[Tensor, ""]:
    """The mean over pairs and both directions of -log softmax of sigma times the inner products, at the right pair.

    Row i of `left` belongs to row i of `right`; rows have length one (or zero).
    """
    similarities, truth = sigma * left @ right.T, torch.arange(len(left), device=left.device)
    return (cross_entropy(similarities, truth) + cross_entropy(similarities.T, truth)) / 2
