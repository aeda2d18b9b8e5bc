"""The part of a metric-learning model that trains: a layer (optional), a pooling with its embedding, and the losses."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32, Int, Int16, Int64
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from polygrain.config.schema import Factor, Section
from polygrain.gsp.folds.maps import Maps
from polygrain.gsp.folds.trunk import Trunk
from polygrain.gsp.poolings import build
from polygrain.gsp.poolings.pooling import Pooled
from polygrain.gsp.poolings.prototypes import Selection, costs, start_prototypes
from polygrain.losses import metric
from polygrain.losses.zero_shot import zero_shot_loss
from polygrain.store import arrays
from polygrain.store.tensors import write_tensors, write_weights

Values = dict[str, float | int | bool | None]
START = 1024  # images whose averages the prototypes are chosen from, as in the reference


class LossParams(Section):
    """A metric loss: its values, its batches and its learning rates."""

    batch_classes: int = Field(ge=2, le=10_000, description="classes in a batch")
    per_class: int = Field(ge=1, le=10_000, description="images of each")
    rate: Factor = Field(description="learning rate with this loss, times gsp_folds.learning_rate")
    proxy_rate: Factor = Field(description="learning rate of the proxies, times the other one")
    warmup: int = Field(ge=0, description="first steps, in which the backbone does not train")
    values: Values = Field(description="of the loss, all that it takes")


class Objective(NamedTuple):
    """(1 - share) metric loss + share zero-shot loss (GSP, 4.3)."""

    name: str
    values: Values
    share: float
    ridge: float
    scale: float


class Embedder(nn.Module):
    """Feature maps to embeddings, and their loss. A backbone that trains is part of it, to be saved with it.

    ValueError for an unknown loss or pooling or wrong values of it, and for a zero-shot loss without attributes.
    """

    def __init__(
        self,
        backbone: Trunk | None,
        channels: int,
        hidden: int,
        embedding: int,
        classes: int,
        pool: str,
        pool_values: dict[str, float | int],
        objective: Objective,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        layer = [nn.Conv2d(channels, hidden, 1), nn.ReLU()] if hidden else []
        self.layer = nn.Sequential(*layer)
        self.head = build.Head(hidden or channels, embedding, pool, **pool_values)
        if objective.share and not self.has_prototypes:
            raise ValueError(f"{pool} has no attributes for a zero-shot loss: set zero_shot to 0 for it")
        self.loss = metric.build(objective.name, embedding, classes, **objective.values)
        self.objective = objective
        self.class_embeddings = nn.Parameter(torch.empty(classes, embedding)) if objective.share else None
        if self.class_embeddings is not None:
            nn.init.kaiming_normal_(self.class_embeddings)

    @property
    def has_prototypes(self) -> bool:
        return any(isinstance(part, Selection) for part in self.head.modules())

    def forward(self, maps: Float[Tensor, "batch channel y x"]) -> Pooled:
        """The embedding (not normalised), and where the pooling has them its attributes and weights."""
        return self.head(self.layer(maps))

    def loss_of(self, maps: Float[Tensor, "batch channel y x"], labels: Int[Tensor, " batch"]) -> Float[Tensor, ""]:
        pooled = self(maps)
        loss = self.loss(pooled.vector, labels)
        if self.class_embeddings is None:
            return loss
        share, ridge, scale = self.objective.share, self.objective.ridge, self.objective.scale
        zero_shot = zero_shot_loss(pooled.attributes, labels, self.class_embeddings, ridge, scale)
        return (1 - share) * loss + share * zero_shot

    @torch.no_grad()
    def start(self, maps: Float[Tensor, "image channel y x"], seed: int) -> None:
        """Sets the prototypes to averages of these maps in the embedded space, by greedy k-centre."""
        space = self.head.embed(self.layer(maps))
        start_prototypes(self.head.pool, nn.functional.normalize(space.mean((2, 3)), dim=1), seed)


def parameter_groups(embedder: Embedder, rate: float, proxy_factor: float) -> list[dict[str, Any]]:
    """Groups of the optimizer: the loss's proxies with their own rate, and all other parameters that train."""
    proxies = [p for p in embedder.loss.parameters() if p.requires_grad]
    proxy_ids = {id(p) for p in proxies}
    others = [p for p in embedder.parameters() if p.requires_grad and id(p) not in proxy_ids]
    groups = [{"params": others, "lr": rate}]
    return [*groups, {"params": proxies, "lr": rate * proxy_factor}] if proxies else groups


@torch.no_grad()
def embed(
    embedder: Embedder, maps: Maps, rows: Int64[np.ndarray, " image"]
) -> tuple[Float32[np.ndarray, "image dim"], Float32[np.ndarray, "image prototype"] | None]:
    """Unit-length embeddings, and attributes if the pooling has them."""
    embedder.eval()
    pooled = [embedder(block) for block in maps.plain(rows)]
    vectors = torch.cat([functional.normalize(part.vector.float(), dim=1) for part in pooled])
    if pooled[0].attributes is None:
        return vectors.cpu().numpy(), None
    return vectors.cpu().numpy(), torch.cat([part.attributes for part in pooled]).float().cpu().numpy()


@torch.no_grad()
def look(
    embedder: Embedder, maps: Maps, rows: Int64[np.ndarray, " image"]
) -> tuple[Float32[np.ndarray, "image y x"], Int16[np.ndarray, "image y x"] | None]:
    """The weight of every place (sum 1; all equal for poolings without weights) and its nearest prototype."""
    embedder.eval()
    weights, nearest = [], []
    selection = next((part for part in embedder.modules() if isinstance(part, Selection)), None)
    for block in maps.plain(rows):
        pooled = embedder(block)
        places = block.shape[2] * block.shape[3]
        even = torch.full((len(block), *block.shape[2:]), 1 / places)
        weights.append(even if pooled.weights is None else pooled.weights.float().cpu())
        if selection is not None:
            space = embedder.head.embed(embedder.layer(block))
            distances = costs(space.flatten(2), selection.prototypes)
            nearest.append(distances.argmin(1).view(-1, *block.shape[2:]).short().cpu())
    return torch.cat(weights).numpy(), torch.cat(nearest).numpy() if nearest else None


def write(folder: Path, embedder: Embedder, maps: Maps, rows: np.ndarray) -> None:
    """The weights, embeddings and attributes of one fold."""
    write_weights(embedder, folder / "weights.safetensors")
    vectors, attributes = embed(embedder, maps, rows)
    arrays.write(folder / "embeddings.zarr", vectors, "image dim")
    if attributes is not None:
        arrays.write(folder / "attributes.zarr", attributes, "image prototype")


def write_pictures(
    folder: Path, embedder: Embedder, maps: Maps, rows: np.ndarray, labels: np.ndarray, count: int
) -> None:
    """The weights of the pooling in the first image of each of `count` classes spread over all."""
    firsts = rows[np.unique(labels[rows], return_index=True)[1]]
    shown = firsts[np.unique(np.linspace(0, len(firsts) - 1, min(count, len(firsts))).round().astype(int))]
    weights, nearest = look(embedder, maps, shown)
    pixels = (255 * maps.views(shown, None)).round().byte().permute(0, 2, 3, 1).cpu().contiguous()
    tensors = {"rows": torch.from_numpy(shown), "pixels": pixels, "weights": torch.from_numpy(weights)}
    tensors |= {} if nearest is None else {"nearest": torch.from_numpy(nearest)}
    write_tensors(tensors, folder / "pictures.safetensors")
