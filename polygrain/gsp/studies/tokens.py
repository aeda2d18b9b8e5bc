"""Bags of tokens: drawn data in which half of every bag says nothing about its class (GSP, 5.1, Fig. 3a).

A bag mixes tokens of its class with tokens that all classes share. Tokens are trained vectors. A mean has to arrange
them so that the shared ones do no harm; a selection can leave those out.
"""

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from polygrain.config.schema import Section
from polygrain.gsp.poolings import build
from polygrain.gsp.poolings.pooling import Pooled
from polygrain.losses import metric
from polygrain.losses.zero_shot import zero_shot_loss
from polygrain.retrieval.ranking_metrics import measure

LIMIT = 0.3  # of every coordinate of a token, as in the reference


class World(Section):
    """The tokens, and how a bag is drawn from them."""

    classes: int = Field(ge=2, le=10_000, description="classes of bags")
    own: int = Field(ge=1, le=10_000, description="tokens of each class")
    shared: int = Field(ge=1, le=10_000, description="tokens of all classes")
    bag: int = Field(ge=2, le=10_000, description="tokens in a bag")
    mean_share: float = Field(gt=0, lt=1, description="share of a bag's tokens that are of its class, on average")
    share_deviation: float = Field(ge=0, le=1, description="standard deviation of that share")

    @property
    def vocabulary(self) -> int:
        return self.classes * self.own + self.shared


def draw(world: World, labels: Int[Tensor, " bag"], generator: torch.Generator) -> Int[Tensor, "bag token"]:
    """Token numbers of one bag per label: class c has c * own to (c + 1) * own - 1, the shared ones come last."""
    count = len(labels)
    share = world.mean_share + world.share_deviation * torch.randn(count, 1, generator=generator)
    own_count = (share.clamp(0, 1) * world.bag).round()
    own = labels[:, None] * world.own + torch.randint(world.own, (count, world.bag), generator=generator)
    shared = world.classes * world.own + torch.randint(world.shared, (count, world.bag), generator=generator)
    return torch.where(torch.arange(world.bag) < own_count, own, shared)


class Bags(nn.Module):
    """Trained token vectors and a pooling over them; embeddings are not normalised."""

    def __init__(
        self, world: World, size: int, pool: str, values: dict[str, float | int], margin: float, zero_shot: float
    ) -> None:
        super().__init__()
        self.tokens = nn.Parameter(torch.empty(world.vocabulary, size))
        nn.init.xavier_uniform_(self.tokens)
        self.pool = build.build(pool, size, **values)
        self.loss = metric.build(
            "c2", size, world.classes, positive_margin=0.0, negative_margin=margin, normalise=False
        )
        self.share = zero_shot
        self.class_embeddings = nn.Parameter(nn.init.kaiming_normal_(torch.empty(world.classes, size)))
        self.clamp()

    @torch.no_grad()
    def clamp(self) -> None:
        """Keeps every coordinate within +-0.3, so that embeddings do not lower the loss by growing."""
        self.tokens.clamp_(-LIMIT, LIMIT)

    def forward(self, bags: Int[Tensor, "bag token"]) -> Pooled:
        return self.pool(self.tokens[bags].transpose(1, 2).unsqueeze(3))

    def loss_of(self, bags: Int[Tensor, "bag token"], labels: Int[Tensor, " bag"]) -> Float[Tensor, ""]:
        pooled = self(bags)
        loss = self.loss(pooled.vector, labels)
        if not self.share:
            return loss
        zero_shot = zero_shot_loss(pooled.attributes, labels, self.class_embeddings, 0.05, 9.5)
        return (1 - self.share) * loss + self.share * zero_shot


def map_at_r(vectors: Float[Tensor, "bag dim"], labels: Int[Tensor, " bag"]) -> float:
    """Mean MAP@R by distance, because these embeddings are not normalised."""
    closeness = -torch.cdist(vectors, vectors, compute_mode="donot_use_mm_for_euclid_dist")
    relevant = (labels[:, None] == labels).sum(1) - 1
    closeness.fill_diagonal_(-torch.inf)
    hits = labels[closeness.topk(int(relevant.max())).indices] == labels[:, None]
    return float(measure(hits, relevant)[1].mean())
