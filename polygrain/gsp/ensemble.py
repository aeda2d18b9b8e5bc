"""Scores of several folds together, and whether attributes predict unseen classes (GSP, 1.6.5 and Fig. 5)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import torch
from jaxtyping import Float32, Int64

from polygrain.compute.vectors import unit_rows
from polygrain.losses.zero_shot import predict


def class_means(
    values: Float32[np.ndarray, "image dim"], labels: Int64[np.ndarray, " image"]
) -> Float32[np.ndarray, "class dim"]:
    """The mean of each class, classes in ascending order."""
    return np.stack([values[labels == label].mean(0) for label in np.unique(labels)])


def transfer(
    attributes: Float32[np.ndarray, "image prototype"],
    embeddings: Float32[np.ndarray, "image dim"],
    labels: Int64[np.ndarray, " image"],
    splits: int,
    ridge: float,
    seed: int,
) -> dict[str, float | dict[float, float]]:
    """Tests a ridge regression from mean attributes to mean embeddings on classes that it was not fitted to.

    Means over `splits` random halves of the classes: `distance` and `cosine` of the predicted and the true embedding;
    `map_by_distance` and `map_by_cosine`, MAP where a prediction ranks the unseen classes.
    `spread_by_distance` and `spread_by_cosine`: {MAP to the nearest .05: part of the splits}.
    """
    inputs = torch.from_numpy(class_means(attributes, labels)).double()
    targets = torch.from_numpy(class_means(embeddings, labels)).double()
    count = len(inputs)
    generator, results = torch.Generator().manual_seed(seed), []
    for _ in range(splits):
        order = torch.randperm(count, generator=generator)
        fitted, unseen = order[: (count + 1) // 2], order[(count + 1) // 2 :]
        predicted = predict(inputs[fitted], targets[fitted], inputs[unseen], ridge)
        distances = torch.cdist(predicted, targets[unseen])
        cosines = torch.cosine_similarity(predicted[:, None], targets[unseen], dim=2)
        # One class is right, so the average precision of a prediction is one over the rank of its class.
        ranks = [(values <= values.diagonal()[:, None]).sum(1) for values in (distances, -cosines)]
        rows = [distances.diagonal(), cosines.diagonal(), *(1 / rank for rank in ranks)]
        results.append(torch.stack([row.double().mean() for row in rows]))
    names = ("distance", "cosine", "map_by_distance", "map_by_cosine")
    columns = torch.stack(results)
    spreads = {
        name.replace("map", "spread"): {step / 20: n / splits for step, n in sorted(Counter(column.tolist()).items())}
        for name, column in zip(names[2:], (20 * columns.T[2:]).round().long(), strict=True)
    }
    return dict(zip(names, columns.mean(0).tolist(), strict=True)) | spreads


def combinations(folds: int, repeats: int) -> list[tuple[int, ...]]:
    """Every choice of one repeat per fold: `repeats ** folds` of them (the paper: 3^4 = 81)."""
    return list(product(range(repeats), repeat=folds))


def side_by_side(vectors: list[Float32[np.ndarray, "image dim"]]) -> Float32[np.ndarray, "image all"]:
    """Unit vectors of all folds together (the paper's 512-D)."""
    return unit_rows(np.concatenate(vectors, 1)).astype(np.float32)


def average(metrics: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each metric."""
    return {name: float(np.mean([each[name] for each in metrics])) for name in metrics[0]}


def summary_of(values: list[float]) -> dict[str, float]:
    """Mean, standard deviation (of the sample; 0 for one value), smallest and largest."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {"mean": float(np.mean(values)), "std": deviation, "min": min(values), "max": max(values)}
