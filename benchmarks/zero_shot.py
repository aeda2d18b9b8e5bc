"""What an encoder knows of unseen classes, beside raw pixels and the same network started at random.

    python -m benchmarks.zero_shot IMAGES [--encoder encoders/vit48] [--per-class 40] [--seeds 0 1 2]

IMAGES is a profile's `data/images` at the encoder's resolution. Counted are the second half of the classes by name (the
larger half where their number is odd), at most so many images of a class, the first by name. One JSON line per row, in
percent: zero-shot R-Precision, and for encoders k-NN (20, temperature .07) and a linear probe (50 epochs), both fitted
on every second image of these classes and tested on the others.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from polygrain.mpcl import trainable
from polygrain.mpcl.probe import Recipe, accuracy, embed, fit_linear, knn_accuracy, probe_split
from polygrain.retrieval.metrics import retrieval_metrics
from polygrain.store import arrays
from polygrain.store.collection import read_table

LINEAR = Recipe(
    epochs=50, batch=64, classifier_rate=0.3, encoder_rate=0, weight_decay=0, augmentation=None, crop_ratio=1
)


def choose(labels: np.ndarray, per_class: int) -> np.ndarray:
    """The rows of the first `per_class` images of each class of the second half."""
    classes = np.unique(labels[labels >= 0])
    return np.concatenate([np.flatnonzero(labels == c)[:per_class] for c in classes[len(classes) // 2 :]])


def probe(features: torch.Tensor, labels: np.ndarray) -> dict[str, float]:
    """k-NN and linear accuracy, fitted on every second image of each class."""
    _, classes = np.unique(labels, return_inverse=True)
    known, asked = probe_split(classes, np.zeros(len(classes), bool))
    vectors, targets = features.numpy(), torch.from_numpy(classes)
    linear = fit_linear(features[known], targets[known], int(classes.max()) + 1, LINEAR, 0)
    knn = knn_accuracy(vectors[known], classes[known], vectors[asked], classes[asked], 20, 0.07)
    return {"k-NN": knn, "linear probe": accuracy(linear, features[asked], classes[asked])}


def main(images: Path, folder: Path, per_class: int, seeds: list[int]) -> None:
    config = trainable.read_config(folder)
    encoders = {str(folder): trainable.load(folder)}
    for seed in seeds:
        torch.manual_seed(seed)
        encoders[f"random start, seed {seed}"] = trainable.TrainableEncoder(config)
    rows: dict[tuple[str, str], dict[str, float]] = {}
    for task in sorted(path.name for path in images.iterdir() if path.is_dir()):
        table, pixels = read_table(images / task), arrays.open(images / task / "pixels.zarr")
        labels = table["label"].to_numpy()
        chosen = choose(labels, per_class)
        vectors = pixels[chosen].reshape(len(chosen), -1).astype(np.float32)
        embeddings = {"raw pixels": torch.from_numpy(vectors - vectors.mean(1, keepdims=True))}
        embeddings |= {name: embed(encoder, pixels, chosen, 256) for name, encoder in encoders.items()}
        for name, found in embeddings.items():
            measured = {"R-Precision": retrieval_metrics(found, labels[chosen])["r_precision"]}
            if name in encoders:
                measured |= probe(found, labels[chosen])
            for measure, value in measured.items():
                rows.setdefault((name, measure), {})[task] = 100 * value
    for (name, measure), scores in rows.items():
        mean = round(float(np.mean(list(scores.values()))), 2)
        row = {"encoder": name, "measure": measure, "mean": mean}
        print(json.dumps(row | {task: round(value, 1) for task, value in scores.items()}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path)
    parser.add_argument("--encoder", type=Path, default=Path("encoders/vit48"))
    parser.add_argument("--per-class", type=int, default=40)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given = parser.parse_args()
    main(given.images, given.encoder, given.per_class, given.seeds)
