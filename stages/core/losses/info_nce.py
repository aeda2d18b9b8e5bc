"""InfoNCE for several heads at once (MPCL, Eq. 1): against a queue of earlier keys, or against the batch itself."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

HeadValues = tuple[Float[Tensor, " head"], Float[Tensor, " head"]]


def queue_contrast(
    queries: Float[Tensor, "head batch dim"],
    keys: Float[Tensor, "head batch dim"],
    queue: Float[Tensor, "head slot dim"],
    temperature: float,
) -> HeadValues:
    """Each head's mean of -log softmax of its positive among the positive and its own queue, and its top-1 accuracy.

    All vectors have unit length. The accuracy is the share of queries whose own key is nearer than all the queue.
    """
    positive = (queries * keys).sum(-1).float() / temperature
    negative = torch.einsum("mbd,mkd->mbk", queries, queue).float() / temperature
    # Joined by logaddexp: one more column would mean a copy of head x batch x slot logits.
    losses = (torch.logaddexp(positive, torch.logsumexp(negative, -1)) - positive).mean(1)
    with torch.no_grad():
        accuracies = (positive > negative.amax(-1)).float().mean(1)
    return losses, accuracies


def batch_contrast(
    queries: Float[Tensor, "head batch dim"],
    keys: Float[Tensor, "head all dim"],
    temperature: float,
    offset: int = 0,
) -> HeadValues:
    """Each head's 2 tau cross entropy of query i choosing key `offset` + i among all keys, and its accuracy (MoCo v3).

    `keys` are those of all devices; `offset` is where this device's own begin.
    """
    logits = torch.einsum("mbd,mkd->mbk", queries, keys).float() / temperature
    labels = torch.arange(offset, offset + logits.shape[1], device=logits.device)
    losses = torch.stack([functional.cross_entropy(head, labels) for head in logits])
    return 2 * temperature * losses, (logits.argmax(-1) == labels).float().mean(1)
