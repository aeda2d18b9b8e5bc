"""The part of a metric-learning model that trains: (a layer,) a pooling with its embedding, the losses' parameters."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from stages.core import pooling
from stages.core.feature_map import FeatureMap
from stages.core.losses import metric
from stages.core.losses.zero_shot import zero_shot_loss
from stages.core.poolings.selection import Selection
from stages.core.runner.schema import Section

Values = dict[str, float | int | bool | None]
START = 1024  # images whose averages the prototypes are chosen from, as in the reference


class Loss(Section):
    """A metric loss: its values, and the batches it wants."""

    batch_classes: int = Field(ge=2, description="classes in a batch")
    per_class: int = Field(ge=1, description="images of each")
    proxy_rate: float = Field(gt=0, description="learning rate of the proxies, times the other one")
    warmup: int = Field(ge=0, description="steps in which a backbone that trains stays as it is")
    values: Values


class Losses(NamedTuple):
    """What is minimised: (1 - share) metric loss + share zero-shot loss (GSP, 4.3)."""

    name: str
    values: Values
    share: float
    ridge: float
    scale: float


class Embedder(nn.Module):
    """Feature maps to embeddings, and their loss. `backbone` is here only if it trains, so that it is saved with it.

    ValueError for an unknown loss or pooling, for values they do not take, and for a zero-shot loss on a pooling
    without attributes.
    """

    def __init__(
        self,
        backbone: FeatureMap | None,
        channels: int,
        hidden: int,
        embedding: int,
        classes: int,
        pool: str,
        pool_values: dict[str, float | int],
        losses: Losses,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        layer = [nn.Conv2d(channels, hidden, 1), nn.ReLU()] if hidden else []
        self.layer = nn.Sequential(*layer)
        self.head = pooling.Head(hidden or channels, embedding, pool, **pool_values)
        if losses.share and not self.has_prototypes:
            raise ValueError(f"{pool} has no attributes for a zero-shot loss: set zero_shot to 0 for it")
        self.loss = metric.build(losses.name, embedding, classes, **losses.values)
        self.losses = losses
        self.class_embeddings = nn.Parameter(torch.empty(classes, embedding)) if losses.share else None
        if self.class_embeddings is not None:
            nn.init.kaiming_normal_(self.class_embeddings)

    @property
    def has_prototypes(self) -> bool:
        return any(isinstance(part, Selection) for part in self.head.modules())

    def forward(self, maps: Float[Tensor, "batch channel y x"]) -> pooling.Pooled:
        """The embedding (not normalised), and where the pooling has them its attributes and weights."""
        return self.head(self.layer(maps))

    def loss_of(self, maps: Float[Tensor, "batch channel y x"], labels: Int[Tensor, " batch"]) -> Float[Tensor, ""]:
        """The loss of a batch."""
        pooled = self(maps)
        loss = self.loss(pooled.vector, labels)
        if self.class_embeddings is None:
            return loss
        share, ridge, scale = self.losses.share, self.losses.ridge, self.losses.scale
        zero_shot = zero_shot_loss(pooled.attributes, labels, self.class_embeddings, ridge, scale)
        return (1 - share) * loss + share * zero_shot

    @torch.no_grad()
    def start(self, maps: Float[Tensor, "image channel y x"], seed: int) -> None:
        """Places the prototypes at averages of these maps in the embedded space, by greedy k-centre."""
        space = self.head.embed(self.layer(maps))
        pooling.start_prototypes(self.head.pool, nn.functional.normalize(space.mean((2, 3)), dim=1), seed)


def parameter_groups(embedder: Embedder, rate: float, proxy_factor: float) -> list[dict]:
    """Adam's groups: all that trains, and apart from it the loss's proxies with a rate of their own."""
    proxies = [p for p in embedder.loss.parameters() if p.requires_grad]
    known = {id(p) for p in proxies}
    others = [p for p in embedder.parameters() if p.requires_grad and id(p) not in known]
    groups = [{"params": others, "lr": rate}]
    return [*groups, {"params": proxies, "lr": rate * proxy_factor}] if proxies else groups
