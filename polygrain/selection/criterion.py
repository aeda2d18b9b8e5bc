"""How good an embedding is, as far as images without labels can tell: two shares for each image, within its own task.

- **Recall**: of two views of an image, does one find the other among the views of all images? What tells images apart
  tells fine classes apart. Half of it is between two views as in training: they say what should not matter, such as the
  thickness of a stroke. Half is between views unlike those of training, one recoloured, one coarse: a model finds again
  what training showed it, whatever else is forgotten meanwhile.
- **Agreement**: the share of an image's nearest neighbours that the reference has, too. The reference is the frozen
  encoder at its most careful: several input sizes (and the mirror image) side by side, half-whitened. It is the
  counterweight: what forgets how the encoder sees loses it, what comes near the careful look in one pass gains.

The criterion is 0.4 + 0.4 for the two recalls and 0.2 for the agreement.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from pydantic import Field
from torch import Tensor
from torch.nn.functional import interpolate

from polygrain.compute import device
from polygrain.compute.blocks import blocks
from polygrain.config.schema import BatchSize, Count, Section, Width
from polygrain.encoder.extract import embed
from polygrain.encoder.model import Model, most_blocks
from polygrain.encoder.networks import patch_side
from polygrain.encoder.views import Augmentation, augment, centre_crop
from polygrain.retrieval import whitening
from polygrain.retrieval.neighbours import nearest
from polygrain.runner.progress import progress
from polygrain.store import arrays
from polygrain.store.collection import Collection

# An embedding at 16 times the side costs 256 passes: no look is that careful.
Scale = Annotated[float, Field(ge=0.1, le=16)]


class Reference(Section):
    """The encoder at its most careful."""

    scales: list[Scale] = Field(
        min_length=1, max_length=20, description="sides of its inputs, in sides of the encoder's own"
    )
    mirrored: bool = Field(description="see the mirror image, too; false where left and right differ, as in text")
    blocks: int = Field(
        ge=1,
        le=1000,
        description="outputs side by side: the last block's, and those of blocks before it (or all there are)",
    )
    dim: Width = Field(description="dimensions kept by half whitening (fewer where the data allow fewer)")


class CriterionSettings(Section):
    """How candidates are compared without labels."""

    images: int = Field(ge=2, le=1_000_000, description="training images drawn from each task, at most")
    watched: int = Field(ge=2, le=1_000_000, description="of them, those looked at after each epoch of training")
    fewest: int = Field(
        ge=2, le=1_000_000, description="a task with fewer training images cannot tell, and does not count"
    )
    trained: Augmentation = Field(description="what is drawn for two views as in training: adaptor.augmentation")
    recoloured: Augmentation = Field(description="what is drawn for one of the two views unlike those of training")
    coarse: float = Field(gt=0, lt=1, description="share of the side to which the other is reduced, and back")
    neighbours: Count = Field(description="compared with those of the reference")
    batch: BatchSize = Field(description="images per forward pass")
    precision: device.Precision


AGREEMENT = 0.2  # its weight
# Of a task's images found by their views. Chance finds one, give or take one; this is three times as far off.
CHANCE = 4


@dataclass(frozen=True)
class Sample:
    """Training images, as rows of the whole collection; `tasks` has the task of each."""

    rows: Int[np.ndarray, " image"]
    tasks: np.ndarray

    def parts(self) -> dict[str, Int[np.ndarray, " image"]]:
        """Where the images of each task stand in the sample."""
        return {task: np.flatnonzero(self.tasks == task) for task in dict.fromkeys(self.tasks)}


def draw(collection: Collection, count: int, fewest: int, seed: int) -> Sample:
    """Up to `count` training images of each task that has `fewest` of them; none of the others."""
    train, generator = collection.train, np.random.default_rng(seed)
    rows = []
    for task in dict.fromkeys(collection.tasks):
        own = generator.permutation(train[collection.tasks[train] == task])
        rows.append(np.sort(own[:count]) if len(own) >= fewest else own[:0])
    chosen = np.concatenate(rows)
    return Sample(chosen, collection.tasks[chosen])


View = Callable[[UInt8[Tensor, "batch y x channel"], int, torch.Generator], Float[Tensor, "batch 3 side side"]]


@dataclass(frozen=True)
class Seen:
    """Embeddings of the sample's images, as they are and in pairs of views."""

    plain: Float[np.ndarray, "image dim"]
    pairs: list[tuple[Float[np.ndarray, "image dim"], Float[np.ndarray, "image dim"]]]

    def through(self, change: Callable[[np.ndarray], np.ndarray]) -> "Seen":
        """The same after a change of the embeddings."""
        return Seen(change(self.plain), [(change(first), change(second)) for first, second in self.pairs])


def coarsen(share: float, pixels: Tensor, size: int) -> Tensor:
    """The centre crop, reduced to a share of its side and brought back."""
    images = centre_crop(pixels, size)
    small = interpolate(images, [max(1, round(share * size))] * 2, mode="bicubic", antialias=True, align_corners=False)
    return interpolate(small, [size] * 2, mode="bicubic", align_corners=False).clamp(0, 1)


def see(model: Model, pixels: arrays.Reader, sample: Sample, settings: CriterionSettings) -> Seen:
    """The same views for every model: they depend on the image's place in the sample and nothing else."""
    where, size = next(model.parameters()).device, model.config.size
    views: list[View] = [
        lambda images, size, generator: centre_crop(images, size),
        lambda images, size, generator: augment(images, size, settings.trained, generator),
        lambda images, size, generator: augment(images, size, settings.trained, generator),
        lambda images, size, generator: augment(images, size, settings.recoloured, generator),
        lambda images, size, generator: coarsen(settings.coarse, images, size),
    ]
    found: list[list[np.ndarray]] = [[np.empty((0, model.dim), np.float32)] for _ in views]
    parts = blocks(len(sample.rows), settings.batch)
    for i, part in enumerate(progress(parts, "sample", len(parts), unit="batch")):
        images = device.staged(pixels[sample.rows[part]], where).to(where)
        generator = torch.Generator().manual_seed(i)
        for view, embeddings in zip(views, found, strict=True):
            seen = view(images, size, generator)
            with torch.inference_mode(), device.autocast(where, settings.precision):
                embeddings.append(model(seen).float().cpu().numpy())
    plain, *four = (np.concatenate(embeddings) for embeddings in found)
    return Seen(plain, [(four[0], four[1]), (four[2], four[3])])


def tell(
    collection: Collection, encoder: Model, pixels: arrays.Reader, settings: CriterionSettings, seed: int
) -> Sample:
    """The sample of those tasks that can tell: of which the encoder finds more by their views than chance does.

    That shows in the few images that training watches; candidates are compared on more.
    """
    few = draw(collection, settings.watched, settings.fewest, seed)
    seen = see(encoder, pixels, few, settings)
    hits = np.mean([recall(first, second, few) for first, second in seen.pairs], 0)
    clear = [task for task, own in few.parts().items() if hits[own].sum() > CHANCE]
    drawn = draw(collection, settings.images, settings.fewest, seed)
    kept = np.isin(drawn.tasks, clear)
    return Sample(drawn.rows[kept], drawn.tasks[kept])


def refer(
    model: Model, pixels: arrays.Reader, sample: Sample, reference: Reference, settings: CriterionSettings
) -> Float[np.ndarray, "image dim"]:
    """The reference's embeddings of the sample; `model` is the plain encoder."""
    looks = look(model, pixels, sample.rows, reference, settings.batch, settings.precision, "reference")
    dim = min(reference.dim, whitening.largest(looks))
    return whitening.apply(whitening.fit(looks, dim, "half"), looks) if dim else looks


def look(
    model: Model,
    pixels: arrays.Reader,
    rows: np.ndarray,
    reference: Reference,
    batch: int,
    precision: device.Precision,
    description: str,
) -> Float[np.ndarray, "image dim"]:
    """A model's embeddings at several input sizes side by side, together of unit length."""
    where = next(model.parameters()).device
    sides = [round_side(scale * model.config.side, model) for scale in reference.scales]
    # What lies behind an encoder was made for the blocks that it has.
    blocks = model.config.blocks if model.config.reduced else min(reference.blocks, most_blocks(model))
    looks = [model.seen(side, reference.mirrored, blocks).to(where) for side in sides]
    found = [embed(one, pixels, rows, batch, precision, description) for one in looks]
    return np.concatenate(found, 1) / math.sqrt(len(found))


def round_side(side: float, model: Model) -> int:
    """The nearest whole side that the network can take: a multiple of a ViT's patch, any for a CNN.

    Networks that are built for one side, and cannot be brought to another, keep their own.
    """
    if not model.takes_other_sides:
        return model.config.side
    step = patch_side(model.backbone)
    return max(step, step * round(side / step))


def recall(first: np.ndarray, second: np.ndarray, sample: Sample) -> Float[np.ndarray, " image"]:
    """Of the two searches of each image, the share that succeeds: 0, 0.5 or 1. Rows are of unit length."""
    hits = np.zeros(len(first))
    for own in sample.parts().values():
        similarity = first[own] @ second[own].T
        truth = np.arange(len(own))
        hits[own] = ((similarity.argmax(1) == truth).astype(float) + (similarity.argmax(0) == truth)) / 2
    return hits


def neighbours(embeddings: np.ndarray, sample: Sample, count: int) -> dict[str, Int[np.ndarray, "image neighbour"]]:
    """Per task the places of each image's nearest others (fewer in a smaller task)."""
    found = {}
    for task, own in sample.parts().items():
        kept = min(count, len(own) - 1)
        found[task] = nearest(embeddings[own], embeddings[own], kept, exclude_self=True)[1]
    return found


def agreement(
    found: dict[str, np.ndarray], reference: dict[str, np.ndarray], sample: Sample
) -> Float[np.ndarray, " image"]:
    """The share of each image's nearest that `reference` names, too; both are of `neighbours`."""
    shares = np.zeros(len(sample.rows))
    for task, own in sample.parts().items():
        same = found[task][:, :, None] == reference[task][:, None, :]
        shares[own] = same.any(2).mean(1)
    return shares


def score(
    seen: Seen, found: dict[str, np.ndarray], reference: dict[str, np.ndarray], sample: Sample
) -> tuple[Float[np.ndarray, " image"], Float[np.ndarray, " image"]]:
    """The criterion for each image of the sample, in 0..1, and its agreement alone; `found` are its `neighbours`."""
    kept = agreement(found, reference, sample)
    recalled = np.mean([recall(first, second, sample) for first, second in seen.pairs], 0)
    return (1 - AGREEMENT) * recalled + AGREEMENT * kept, kept


def mean_over_tasks(values: np.ndarray, sample: Sample) -> float:
    """The mean of the tasks' means; NaN without any image."""
    means = [values[own].mean() for own in sample.parts().values()]
    return float(np.mean(means)) if means else math.nan
