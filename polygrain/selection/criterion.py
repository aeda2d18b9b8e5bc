"""The quality of an embedding, measured without labels: two shares for each image, within its own task.

- **Recall**: of two views of an image, does one find the other among the views of all images? Half of it is between two
  views as in training: they say what should not matter, such as the thickness of a stroke. Half is between views unlike
  those of training, one recoloured, one coarse: a model finds again what training showed it, whatever else it forgot.
- **Agreement**: the share of an image's nearest neighbours that the reference has, too. The reference is the frozen
  encoder at its most careful: several input sizes (and the mirror image) side by side, half-whitened. A model that
  forgets how the encoder sees loses agreement; one that comes near the careful look in one pass gains it.

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
from polygrain.config.schema import Count, Section, Width
from polygrain.encoder.extract import embed, in_passes
from polygrain.encoder.model import Model, most_blocks
from polygrain.encoder.views import Augmentation, augment
from polygrain.retrieval import whitening
from polygrain.retrieval.neighbours import nearest
from polygrain.runner.progress import progress
from polygrain.store import arrays
from polygrain.store.image_table import ImageTable

# An embedding at 16 times the side costs 256 passes: no look is that careful.
Scale = Annotated[float, Field(ge=0.1, le=16)]
AGREEMENT = 0.2  # its weight
# Of a task's images found by their views. Chance finds one, give or take one; this is three times as far off.
CHANCE = 4
FEW = 40  # images of a task, at most, that show whether it can tell


class Reference(Section):
    """The encoder at its most careful."""

    scales: list[Scale] = Field(
        min_length=1, max_length=20, description="sides of its inputs, as multiples of the encoder's own"
    )
    mirrored: bool = Field(description="also take the mirror image; false where left and right differ, as in text")
    blocks: int = Field(
        ge=1,
        le=1000,
        description="outputs side by side: the last block's, and those of blocks before it (or all there are)",
    )
    dim: Width = Field(description="dimensions kept by half whitening (fewer where the data allow fewer)")


class CriterionSettings(Section):
    """The comparison of candidates without labels."""

    images: int = Field(ge=2, le=1_000_000, description="training images drawn from each task, at most")
    fewest: int = Field(ge=2, le=1_000_000, description="a task with fewer training images does not count")
    trained: Augmentation = Field(description="augmentation of two views as in training: adaptor.augmentation")
    recoloured: Augmentation = Field(description="augmentation of one of the two views unlike those of training")
    coarse: float = Field(gt=0, lt=1, description="share of its side to which the other of these views is reduced")
    neighbours: Count = Field(description="nearest images that are compared with the reference's")


@dataclass(frozen=True)
class Sample:
    """Training images, as rows of the whole collection; `tasks` has the task of each."""

    rows: Int[np.ndarray, " image"]
    tasks: np.ndarray

    def parts(self) -> dict[str, Int[np.ndarray, " image"]]:
        """The positions of each task's images in the sample."""
        return {task: np.flatnonzero(self.tasks == task) for task in dict.fromkeys(self.tasks)}


@dataclass(frozen=True)
class Embedded:
    """Embeddings of the sample's images, as they are and in pairs of views."""

    plain: Float[np.ndarray, "image dim"]
    pairs: list[tuple[Float[np.ndarray, "image dim"], Float[np.ndarray, "image dim"]]]

    @classmethod
    def of(cls, stacked: Float[np.ndarray, "image view dim"]) -> "Embedded":
        """The inverse of `stacked`."""
        plain, *four = np.ascontiguousarray(stacked.swapaxes(0, 1))
        return cls(plain, [(four[0], four[1]), (four[2], four[3])])

    def stacked(self) -> Float[np.ndarray, "image view dim"]:
        """As one array."""
        return np.stack([self.plain, *(view for pair in self.pairs for view in pair)], 1)

    def through(self, change: Callable[[np.ndarray], np.ndarray]) -> "Embedded":
        """The same after a change of the embeddings."""
        return Embedded(change(self.plain), [(change(first), change(second)) for first, second in self.pairs])


def draw(collection: ImageTable, count: int, fewest: int, seed: int) -> Sample:
    """Up to `count` training images of each task that has `fewest` of them; none of the others."""
    train = Sample(collection.train, collection.tasks[collection.train])
    generator, kept = np.random.default_rng(seed), [np.empty(0, np.int64)]
    for places in train.parts().values():
        shuffled = generator.permutation(places)
        if len(shuffled) >= fewest:
            kept.append(np.sort(shuffled[:count]))
    chosen = np.concatenate(kept)
    return Sample(train.rows[chosen], train.tasks[chosen])


def draw_clear(
    collection: ImageTable, encoder: Model, pixels: arrays.Reader, settings: CriterionSettings, seed: int
) -> Sample:
    """`draw`, of the tasks that can tell: those in which the encoder finds more images by their views than chance does.

    A task shows that in few images; candidates are compared on more.
    """
    few = draw(collection, FEW, settings.fewest, seed)
    embedded = embed_views(encoder, pixels, few, settings)
    hits = np.mean([recall(first, second, few) for first, second in embedded.pairs], 0)
    clear = [task for task, places in few.parts().items() if hits[places].sum() > CHANCE]
    sample = draw(collection, settings.images, settings.fewest, seed)
    is_clear = np.isin(sample.tasks, clear)
    return Sample(sample.rows[is_clear], sample.tasks[is_clear])


def coarsen(share: float, images: Float[Tensor, "image 3 y x"]) -> Float[Tensor, "image 3 y x"]:
    """Images reduced to a share of their sides and brought back."""
    size = images.shape[2:]
    small = [max(1, round(share * side)) for side in size]
    images = interpolate(images, small, mode="bicubic", antialias=True, align_corners=False)
    return interpolate(images, size, mode="bicubic", align_corners=False).clamp(0, 1)


def squeezed(
    pixels: arrays.Reader, rows: Int[np.ndarray, " image"]
) -> tuple[UInt8[np.ndarray, "image side side 3"], Float[Tensor, " image"]]:
    """Whole images as squares, and their widths over heights."""
    images = pixels[rows]
    for places in pixels.alike(rows):
        whole = pixels.whole(rows[places])
        if whole.shape[1:] != images.shape[1:]:
            scaled = torch.from_numpy(whole).movedim(3, 1)
            scaled = interpolate(scaled, images.shape[1:3], mode="bilinear", antialias=True, align_corners=False)
            images[places] = scaled.movedim(1, 3).numpy()
    heights, widths = torch.from_numpy(pixels.shapes[rows].T.copy())
    return images, widths / heights


def embed_views(model: Model, pixels: arrays.Reader, sample: Sample, settings: CriterionSettings) -> Embedded:
    """The same views for every model: they depend on the image's place in the sample and nothing else.

    A view is a square of any part that the model may see; the image as it is, and coarse, may be a rectangle.
    """
    where, size = next(model.parameters()).device, model.config.size
    precision, is_whole = device.inference(size)[1], model.config.shape == "whole"
    embeddings: list[list[np.ndarray]] = [[np.empty((0, model.dim), np.float32)] for _ in range(3)]
    # Views are drawn batch by batch, so no model and no machine may have batches of its own.
    parts = blocks(len(sample.rows), device.batch_at(pixels.shape[1], 128))
    for i, part in enumerate(progress(parts, "sample", len(parts), unit="batch")):
        rows = sample.rows[part]
        squares, aspects = squeezed(pixels, rows) if is_whole else (pixels[rows], None)
        images = device.staged(squares, where).to(where)
        generator = torch.Generator().manual_seed(i)
        views = [
            augment(images, size, settings.trained, generator, aspects=aspects),
            augment(images, size, settings.trained, generator, aspects=aspects),
            augment(images, size, settings.recoloured, generator, aspects=aspects),
        ]
        for view, batches in zip(views, embeddings, strict=True):
            with torch.inference_mode(), device.autocast(where, precision):
                batches.append(in_passes(model, view, model.config.side).float().cpu().numpy())

    def coarse(images: Tensor) -> Tensor:
        return model(coarsen(settings.coarse, images))

    drawn = map(np.concatenate, embeddings)
    plain, reduced = (
        embed(model, pixels, sample.rows, *device.inference(size), name, compute)
        for name, compute in (("sample as it is", None), ("sample, coarse", coarse))
    )
    return Embedded.of(np.stack([plain, *drawn, reduced], 1))


def embed_reference(
    encoder: Model, pixels: arrays.Reader, sample: Sample, reference: Reference
) -> Float[np.ndarray, "image dim"]:
    """The reference's embeddings of the sample; `encoder` has no adaptors."""
    looks = embed_carefully(encoder, pixels, sample.rows, reference, *device.inference(pixels.shape[1]), "reference")
    return half_whitened(looks, reference.dim)


def half_whitened(looks: Float[np.ndarray, "image look"], dim: int) -> Float[np.ndarray, "image dim"]:
    """Looks as the reference has them; as they are where all are alike."""
    whitener = whitening.fit_if_varied(looks, dim, "half")
    return looks if whitener is None else whitening.apply(whitener, looks)


def embed_carefully(
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
    # A last layer was made for the blocks that the model has.
    blocks = model.config.blocks if model.config.reduced else min(reference.blocks, most_blocks(model))
    looks = [model.at_side(side, reference.mirrored, blocks).to(where) for side in sides]
    embeddings = [embed(look, pixels, rows, batch, precision, description) for look in looks]
    return np.concatenate(embeddings, 1) / math.sqrt(len(embeddings))


def round_side(side: float, model: Model) -> int:
    """The nearest whole side that the network can take: a multiple of a ViT's patch, any for a CNN.

    A network that is built for one side keeps it.
    """
    if not model.takes_other_sides:
        return model.config.side
    step = model.family.patch
    return max(step, step * round(side / step))


def recall(first: np.ndarray, second: np.ndarray, sample: Sample) -> Float[np.ndarray, " image"]:
    """Of the two searches of each image, the share that succeeds: 0, 0.5 or 1. Rows are of unit length."""
    hits = np.zeros(len(first))
    for places in sample.parts().values():
        similarity = first[places] @ second[places].T
        truth = np.arange(len(places))
        hits[places] = ((similarity.argmax(1) == truth).astype(float) + (similarity.argmax(0) == truth)) / 2
    return hits


def neighbours(embeddings: np.ndarray, sample: Sample, count: int) -> dict[str, Int[np.ndarray, "image neighbour"]]:
    """Per task each image's nearest others (fewer in a smaller task), by their places within the task."""
    return {
        task: nearest(embeddings[rows], embeddings[rows], min(count, len(rows) - 1), exclude_self=True)[1]
        for task, rows in sample.parts().items()
    }


def score(
    embedded: Embedded, hits: dict[str, np.ndarray], reference: dict[str, np.ndarray], sample: Sample
) -> tuple[Float[np.ndarray, " image"], Float[np.ndarray, " image"]]:
    """The criterion for each image of the sample, in 0..1, and its agreement alone.

    `hits` are the `neighbours` of the embeddings, `reference` those of the reference.
    """
    agreement = np.zeros(len(sample.rows))
    for task, places in sample.parts().items():
        same = hits[task][:, :, None] == reference[task][:, None, :]
        agreement[places] = same.any(2).mean(1)
    recalls = np.mean([recall(first, second, sample) for first, second in embedded.pairs], 0)
    return (1 - AGREEMENT) * recalls + AGREEMENT * agreement, agreement


def mean_over_tasks(values: np.ndarray, sample: Sample) -> float:
    """The mean of the tasks' means; NaN without any image."""
    means = [values[places].mean() for places in sample.parts().values()]
    return float(np.mean(means)) if means else math.nan


def standard_error(values: Float[np.ndarray, " image"]) -> float:
    """Of the mean; infinite for one value alone, which says nothing of its spread."""
    return float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf


def noise(difference: Float[np.ndarray, " image"], sample: Sample) -> float:
    """The standard error of the mean over tasks of the tasks' mean differences."""
    errors = [standard_error(difference[own]) for own in sample.parts().values()]
    return math.hypot(*errors) / len(errors)
