"""A classifier with any pooling before its last layer (GSP, Table 5)."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from polygrain.compute import device
from polygrain.encoder.families import family_of
from polygrain.gsp.poolings import build
from polygrain.gsp.poolings.pooling import Pooled
from polygrain.gsp.poolings.prototypes import Selection
from polygrain.losses.zero_shot import zero_shot_loss

PIXEL_MEAN = PIXEL_STD = 0.5


class PooledClassifier(nn.Module):
    """Images in 0..1 to pooled features, and these to classes; prototypes lie in the space of the network's map.

    ValueError for a network without a map, and for a zero-shot loss on a pooling without attributes.
    """

    def __init__(
        self,
        network: Any,
        pooling: str,
        values: dict[str, float | int | bool | None],
        classes: int,
        zero_shot: float,
        embedding: int,
        precision: device.Precision,
    ) -> None:
        super().__init__()
        if family_of(network).is_transformer:
            raise ValueError("a transformer gives tokens and no map to pool: choose a convolutional network")
        self.network: Any = network
        self.share, self.precision = zero_shot, precision
        self.pool = build.build(pooling, network.num_features, **values)
        self.last = nn.Linear(self.pool.size, classes)
        if zero_shot and not any(isinstance(part, Selection) for part in self.pool.modules()):
            raise ValueError(f"{pooling} has no attributes for a zero-shot loss: set zero_shot to 0 for it")
        self.class_embeddings = nn.Parameter(torch.empty(classes, embedding)) if zero_shot else None
        if self.class_embeddings is not None:
            nn.init.kaiming_normal_(self.class_embeddings)

    def forward(self, images: Float[Tensor, "batch 3 y x"]) -> Pooled:
        with device.autocast(images.device, self.precision):
            maps = self.network.forward_features(device.for_convolutions((images - PIXEL_MEAN) / PIXEL_STD))
        return self.pool(maps.float())

    def loss_of(
        self,
        images: Float[Tensor, "batch 3 y x"],
        labels: Int[Tensor, " batch"],
        smoothing: float,
        ridge: float,
        scale: float,
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Cross entropy mixed with the zero-shot loss, and the accuracy."""
        pooled = self(images)
        logits = self.last(pooled.vector)
        loss = functional.cross_entropy(logits, labels, label_smoothing=smoothing)
        if self.class_embeddings is not None:
            zero_shot = zero_shot_loss(pooled.attributes, labels, self.class_embeddings, ridge, scale)
            loss = (1 - self.share) * loss + self.share * zero_shot
        return loss, (logits.argmax(1) == labels).float().mean()
