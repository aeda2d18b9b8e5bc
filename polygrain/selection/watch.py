"""The criterion after each epoch of training, on a small fixed sample."""

from collections.abc import Callable

from polygrain.compute import device
from polygrain.encoder.model import Model
from polygrain.selection import criterion
from polygrain.store import arrays
from polygrain.store.collection import Collection


def watcher(
    encoder: Model,
    model: Model,
    pixels: arrays.Reader,
    collection: Collection,
    settings: criterion.CriterionSettings,
    reference: criterion.Reference,
    count: int,
    seed: int,
) -> Callable[[], float] | None:
    """A function that returns the criterion of `model` as it is when called, on `count` images of each task at most.

    None where no task can tell.
    """
    sample = criterion.draw(collection, count, settings.fewest, seed)
    if not len(sample.rows):
        return None
    careful = criterion.embed_reference(encoder.to(device.best()), pixels, sample, reference)
    expected = criterion.neighbours(careful, sample, settings.neighbours)

    def watch() -> float:
        embedded = criterion.embed_views(model, pixels, sample, settings)
        hits = criterion.neighbours(embedded.plain, sample, settings.neighbours)
        return criterion.mean_over_tasks(criterion.score(embedded, hits, expected, sample)[0], sample)

    return watch
