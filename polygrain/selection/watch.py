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
    seed: int,
) -> Callable[[], float] | None:
    """What gives the criterion of `model` as it is at that moment; None where no task can tell."""
    sample = criterion.draw(collection, settings.watched, settings.fewest, seed)
    if not len(sample.rows):
        return None
    looks = criterion.refer(encoder.to(device.best()), pixels, sample, reference, settings)
    known = criterion.neighbours(looks, sample, settings.neighbours)

    def watch() -> float:
        seen = criterion.see(model, pixels, sample, settings)
        found = criterion.neighbours(seen.plain, sample, settings.neighbours)
        return criterion.mean_over_tasks(criterion.score(seen, found, known, sample)[0], sample)

    return watch
