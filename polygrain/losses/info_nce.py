"""InfoNCE for several heads at once (MPCL, Eq. 1): against a queue of earlier keys, or against the batch."""

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
    """Each head's loss and accuracy against its own queue.

    The loss is the mean of -log softmax of the positive among the positive and the queue; the accuracy is the share of
    queries that are nearer to their key than to the whole queue. All vectors have unit length.
    """
    positive = (queries * keys).sum(-1).float() / temperature
    negative = torch.einsum("mbd,mkd->mbk", queries, queue).float() / temperature
    # logaddexp adds the positive to the queue's sum; a further column would copy all logits.
    losses = (torch.logaddexp(positive, torch.logsumexp(negative, -1)) - positive).mean(1)
    with torch.no_grad():
        accuracies = (positive > negative.amax(-1)).float().mean(1)
    return losses, accuracies


def batch_contrast(
    queries: Float[Tensor, "head batch dim"], keys: Float[Tensor, "head all dim"], temperature: float, offset: int = 0
) -> HeadValues:
    """Each head's loss and accuracy where query i must choose key `offset` + i among all keys (MoCo v3).

    The loss is the cross entropy times 2 tau. `keys` are those of all devices, `offset` is where this device's begin.
    """
    logits = torch.einsum("mbd,mkd->mbk", queries, keys).float() / temperature
    labels = torch.arange(offset, offset + logits.shape[1], device=logits.device)
    losses = torch.stack([functional.cross_entropy(head, labels) for head in logits])
    return 2 * temperature * losses, (logits.argmax(-1) == labels).float().mean(1)
