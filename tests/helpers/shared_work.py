"""The stages that several processes share, on the small world: run once by one process, once under torchrun.

python -m tests.helpers.shared_work IMAGES ENCODER OUTPUT
"""

import sys
from pathlib import Path
from types import ModuleType

from polygrain.compute import processes
from polygrain.encoder.config import Attention
from polygrain.encoder.views import Augmentation
from polygrain.store import arrays
from stages import adaptor, features, fusion, knn_graph, pseudo_labels, refreshed_graph, seeds
from tests.helpers.settings import classifier, criterion, pairs, reference
from tests.helpers.small import TASKS, lists

VIEWS = Augmentation(smallest_crop=0.5, turn=10, flip=0.5, jitter=0.2, tint=0, grey=0.1, blur=0, stroke=0)
SEEDS = seeds.Params(largest=300, whitening="half", whitened_dim=12, sample=None, drawn="images")
BASIS = {"blocks": 2, "seed": 0}
TRAINING = adaptor.Params(
    width=6,
    start="centroids",
    watch="criterion",
    watched=12,
    **classifier(epochs=2, batch=13, warmup=0.5, augmentation=VIEWS),
)

FUSIONS = ("augmentation", "neighbour", "supervised")
TWINS = pairs(batch=17, augmentation=VIEWS)  # an odd batch: the processes' parts differ in length
FUSION = fusion.Params(
    attention=Attention(),
    average=None,
    augmentation=TWINS,
    neighbour=TWINS | {"neighbours": 3, "refresh": True},
    static=TWINS | {"neighbours": 3, "refresh": False},
    supervised=fusion.Supervised(**classifier(epochs=2, batch=13, augmentation=VIEWS), start_std=0.02),
)


def run(stage: ModuleType, *paths: Path, **given: object) -> None:
    """One stage. In the pipeline each is a torchrun of its own: none begins before the last one's output is there."""
    stage.main(*paths, **given)
    processes.wait()


def main(images: Path, encoder: Path, output: Path) -> None:
    arrays.SHARD_BYTES = 1  # a shard per 256 rows
    features.BLOCK_ROWS = 256
    settings = features.Params(unit_length=True, dtype="float32")
    for task in TASKS:
        run(features, images / task, encoder, output / "features" / task, task=task, params=settings, taken=2)
    found = images, output / "features"
    run(seeds, *found, output / "seeds", params=SEEDS, lists=lists(), **BASIS)
    for name in ("k4", "k8"):
        params = pseudo_labels.Params(max_iterations=50)
        target = output / "pseudo_labels" / name
        run(pseudo_labels, *found, output / "seeds", target, granularity=name, params=params, lists=lists())
    run(
        knn_graph,
        *found,
        output / "knn_graph",
        params=knn_graph.Params(neighbours=4, index="auto", recall=0.95),
        lists=lists(),
    )
    few = output / "sampled"
    sampled = SEEDS.model_copy(update={"sample": 200})
    run(seeds, *found, few / "seeds", params=sampled, lists=lists(), **BASIS)
    params = pseudo_labels.Params(max_iterations=50)
    run(pseudo_labels, *found, few / "seeds", few / "k8", granularity="k8", params=params, lists=lists())
    indexed = knn_graph.Params(neighbours=4, index="ivf", recall=0.9)
    run(knn_graph, *found, output / "indexed", params=indexed, lists=lists())
    given = {"settings": criterion(), "reference": reference(), "lists": lists(), "seed": 0}
    for name in ("k4", "k8"):
        labels, target = output / "pseudo_labels" / name, output / "adaptor" / name
        run(adaptor, images, encoder, labels, target, granularity=name, params=TRAINING, **given)
    parts = images, output / "adaptor", output / "knn_graph"
    settings = refreshed_graph.Params(precision="float32")
    run(refreshed_graph, *parts, output / "refreshed_graph", params=settings, lists=lists())
    parts = *parts[:2], output / "refreshed_graph"
    for pairs_of in FUSIONS:
        target = output / "fusion" / pairs_of
        run(fusion, *parts, target, pairs=pairs_of, params=FUSION, lists=lists(), seed=0)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
