"""The criterion after each epoch of training, on a small fixed sample."""

from collections.abc import Callable
from typing import Literal

from pydantic import Field

from polygrain.compute import device
from polygrain.config.schema import Section
from polygrain.encoder.model import Model
from polygrain.selection import criterion
from polygrain.store import arrays
from polygrain.store.image_table import ImageTable


class WatchSettings(Section):
    """The measurement after each epoch of training."""

    watch: Literal["criterion", "none"] = Field(
        description="criterion: the epoch with the highest one is kept; none: nothing is measured, and the last is kept"
    )
    watched: int = Field(
        ge=2,
        le=1_000_000,
        description="images of each task, at most, on which the criterion is measured after each epoch",
    )


def watcher(
    encoder: Model,
    model: Model,
    pixels: arrays.Reader,
    collection: ImageTable,
    settings: criterion.CriterionSettings,
    reference: criterion.Reference,
    watching: WatchSettings,
    seed: int,
) -> Callable[[], float] | None:
    """A function that returns the criterion of `model` as it is when called, on some images of each task.

    None where `watching` says so, or where no task has images enough.
    """
    if watching.watch == "none":
        return None
    encoder = encoder.to(device.best())
    sample = criterion.draw(collection, watching.watched, settings.fewest, seed)
    if not len(sample.rows):
        return None
    careful = criterion.embed_reference(encoder, pixels, sample, reference)
    expected = criterion.neighbours(careful, sample, settings.neighbours)

    def watch() -> float:
        embedded = criterion.embed_views(model, pixels, sample, settings)
        hits = criterion.neighbours(embedded.plain, sample, settings.neighbours)
        return criterion.mean_over_tasks(criterion.score(embedded, hits, expected, sample)[0], sample)

    return watch
