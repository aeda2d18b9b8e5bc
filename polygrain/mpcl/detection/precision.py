"""Average precision of boxes as COCO has it: a mean over recalls, overlaps and classes."""

import numpy as np
from jaxtyping import Bool, Float, Int

LEVELS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
Rows = dict[str, np.ndarray]
"""Boxes of one image with their `labels`; found ones have `scores`, true ones say which are `ignored`."""


def overlaps(found: np.ndarray, true: np.ndarray, is_crowd: np.ndarray) -> Float[np.ndarray, "found true"]:
    """Intersection over union; of a crowd, the part of the found box that lies in it."""
    low, high = np.maximum(found[:, None, :2], true[None, :, :2]), np.minimum(found[:, None, 2:], true[None, :, 2:])
    common = (high - low).clip(0).prod(2)
    own, other = ((boxes[:, 2:] - boxes[:, :2]).prod(1) for boxes in (found, true))
    return common / np.where(is_crowd, own[:, None], own[:, None] + other - common)


def matched(overlap: Float[np.ndarray, "found true"], ignored: np.ndarray, least: float) -> Int[np.ndarray, " found"]:
    """1 for a box that is right, 0 wrong, -1 neither; in the order of scores each takes the best box that is left."""
    result, taken = np.zeros(len(overlap), int), np.zeros(len(ignored), bool)
    for i, row in enumerate(overlap):
        for pool, value in ((~ignored & ~taken, 1), (ignored, -1)):
            candidates = np.where(pool, row, -1.0)
            if not result[i] and candidates.max(initial=-1) >= least:
                result[i], taken[candidates.argmax()] = value, True
    return result


def interpolated(right: Bool[np.ndarray, " found"], true: int) -> float:
    """The mean over 101 recalls of the best precision that is reached with that recall or more."""
    hits = right.cumsum()
    precisions = np.maximum.accumulate((hits / np.arange(1, len(hits) + 1))[::-1])[::-1]
    return float(np.append(precisions, 0.0)[np.searchsorted(hits / true, RECALLS)].mean())


def average_precision(found: list[Rows], true: list[Rows]) -> dict[str, float]:
    """AP, AP50 and AP75 over the classes that are there; ignored boxes are crowds."""
    values = []
    for label in np.unique(np.concatenate([rows["labels"][~rows["ignored"]] for rows in true])):
        scores, results, count = [], [], 0
        for guess, rows in zip(found, true, strict=True):
            order, own = np.argsort(-guess["scores"], kind="stable"), rows["labels"] == label
            order, ignored = order[guess["labels"][order] == label], rows["ignored"][own]
            overlap = overlaps(guess["boxes"][order], rows["boxes"][own], ignored)
            scores.append(guess["scores"][order])
            results.append(np.stack([matched(overlap, ignored, level) for level in LEVELS]))
            count += int((~ignored).sum())
        whole = np.concatenate(results, 1)[:, np.argsort(-np.concatenate(scores), kind="stable")]
        values.append([interpolated(row[row >= 0] == 1, count) for row in whole])
    means = np.mean(values, 0)
    return {"AP": float(means.mean()), "AP50": float(means[0]), "AP75": float(means[5])}
