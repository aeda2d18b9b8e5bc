"""The metric-learning losses of GSP's study by name (GSP, supplement 1.6.7), most from pytorch-metric-learning.

loss = build("c2", embedding_size=128, classes=100, positive_margin=0.0, negative_margin=0.3841, normalise=True)
loss(embeddings, labels).backward()        # labels in 0..classes-1; proxies, where there are any, are loss.parameters()

Written here are only the losses whose published form differs from the library's: `c1` sums the pairs of an image, where
the library averages the active ones, and `xbm` builds on it.
"""

from collections.abc import Callable
from typing import Annotated

import torch
from jaxtyping import Float, Int
from pydantic import Field
from pytorch_metric_learning import distances, losses
from torch import Tensor, nn

from polygrain.config.schema import Factor, Temperature, Variants
from polygrain.losses.intra_batch import IntraBatch

SAME = 1 - 1e-5  # a cosine above it is of an image with itself


Margin = Annotated[float, Field(ge=0, le=100)]
Part = Annotated[float, Field(ge=0, lt=1)]
Few = Annotated[int, Field(ge=1, le=64)]

loss = KNOWN = Variants[Callable[..., nn.Module]]("loss", given=2)


class Library(nn.Module):
    """A loss of the library."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, embeddings: Float[Tensor, "batch dim"], labels: Int[Tensor, " batch"]) -> Float[Tensor, ""]:
        return self.loss(embeddings.float(), labels)


def pair_sums(
    embeddings: Float[Tensor, "batch dim"],
    labels: Int[Tensor, " batch"],
    others: Float[Tensor, "other dim"],
    other_labels: Int[Tensor, " other"],
    margin: float,
) -> Float[Tensor, ""]:
    """(sum of 1 - s over positive pairs + sum of s - margin over negative pairs above it) / batch, s the cosine."""
    cosines = nn.functional.normalize(embeddings.float(), dim=1) @ nn.functional.normalize(others.float(), dim=1).T
    same = labels[:, None] == other_labels[None]
    positive = (1 - cosines).where(same & (cosines < SAME), 0).sum()
    return (positive + (cosines - margin).relu().where(~same, 0).sum()) / len(embeddings)


class PairSums(nn.Module):
    """C1: the contrastive loss with one margin on cosines, summed over the pairs of each image."""

    def __init__(self, margin: float) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, embeddings: Float[Tensor, "batch dim"], labels: Int[Tensor, " batch"]) -> Float[Tensor, ""]:
        return pair_sums(embeddings, labels, embeddings, labels, self.margin)


class CrossBatchMemory(nn.Module):
    """XBM over C1: the batch's loss plus, from step `start` on, its loss against the last `memory` embeddings.

    As published, the memory includes the present batch; the library's class replaces the batch's loss instead of adding
    to it. The memory is part of the state, so a resumed run continues exactly.
    """

    memory: Tensor
    memory_labels: Tensor
    step: Tensor
    written: Tensor

    def __init__(self, embedding_size: int, margin: float, memory: int, start: int) -> None:
        super().__init__()
        self.margin, self.start = margin, start
        self.register_buffer("memory", torch.zeros(memory, embedding_size))
        self.register_buffer("memory_labels", torch.full((memory,), -1))
        self.register_buffer("step", torch.tensor(0))
        self.register_buffer("written", torch.tensor(0))

    def remember(self, embeddings: Float[Tensor, "batch dim"], labels: Int[Tensor, " batch"]) -> None:
        """Overwrites the oldest rows."""
        embeddings, labels = embeddings[-len(self.memory) :], labels[-len(self.memory) :]
        rows = (self.written + torch.arange(len(labels), device=labels.device)) % len(self.memory)
        self.memory[rows] = embeddings.detach().to(self.memory)
        self.memory_labels[rows] = labels
        self.written += len(labels)

    def forward(self, embeddings: Float[Tensor, "batch dim"], labels: Int[Tensor, " batch"]) -> Float[Tensor, ""]:
        loss = pair_sums(embeddings, labels, embeddings, labels, self.margin)
        self.remember(embeddings, labels)
        if self.step >= self.start:
            filled = min(int(self.written), len(self.memory))
            loss = loss + pair_sums(
                embeddings, labels, self.memory[:filled].clone(), self.memory_labels[:filled], self.margin
            )
        self.step += 1
        return loss


def distance(normalise: bool) -> distances.LpDistance:
    return distances.LpDistance(normalize_embeddings=normalise, p=2)


@loss
def c1(embedding_size: int, classes: int, margin: Margin) -> nn.Module:
    return PairSums(margin)


@loss
def c2(
    embedding_size: int, classes: int, positive_margin: Margin, negative_margin: Margin, normalise: bool
) -> nn.Module:
    """Mean of the positive terms above 0 plus mean of the negative ones above 0, on distances."""
    return Library(losses.ContrastiveLoss(positive_margin, negative_margin, distance=distance(normalise)))


@loss
def triplet(embedding_size: int, classes: int, margin: Margin) -> nn.Module:
    """All triplets of the batch; mean of those above 0."""
    return Library(losses.TripletMarginLoss(margin, distance=distance(True)))


@loss
def multi_similarity(
    embedding_size: int, classes: int, alpha: Factor, beta: Factor, base: Annotated[float, Field(ge=-1, le=1)]
) -> nn.Module:
    """Without its own pair miner, as in GSP's study."""
    return Library(losses.MultiSimilarityLoss(alpha, beta, base))


@loss
def proxy_nca_pp(embedding_size: int, classes: int, temperature: Temperature) -> nn.Module:
    """-log softmax of cosine / temperature over all proxies; ProxyNCA++ has 9 d^2 = 18 - 18 cos, so 1/18."""
    loss = losses.NormalizedSoftmaxLoss(classes, embedding_size, temperature, distance=distances.CosineSimilarity())
    nn.init.kaiming_normal_(loss.W.data.T)
    return Library(loss)


@loss
def proxy_anchor(embedding_size: int, classes: int, margin: Margin, alpha: Factor) -> nn.Module:
    """The negative term is averaged over all proxies, as published.

    GSP's study averages over proxies with a negative; with two classes in the batch those are all.
    """
    return Library(losses.ProxyAnchorLoss(classes, embedding_size, margin=margin, alpha=alpha))


@loss
def xbm(
    embedding_size: int,
    classes: int,
    margin: Margin,
    memory: Annotated[int, Field(ge=1, le=100_000_000)],
    start: Annotated[int, Field(ge=0)],
) -> nn.Module:
    return CrossBatchMemory(embedding_size, margin, memory, start)


@loss
def libc(
    embedding_size: int, classes: int, steps: Few, heads: Few, temperature: Temperature, smoothing: Part, dropout: Part
) -> nn.Module:
    """Two classifiers, one of them after a network that passes messages between the images of a batch."""
    return IntraBatch(embedding_size, classes, steps, heads, temperature, smoothing, dropout)


def build(name: str, embedding_size: int, classes: int, **values: object) -> nn.Module:
    """The loss of that name: a module from (embeddings, labels) to a scalar.

    ValueError lists the known names, or the values that this loss takes.
    """
    return KNOWN.checked(name, values)(embedding_size, classes, **values)
