"""The published counts of public data sets, and the counts of their label files (`counts.csv`)."""

import csv
from pathlib import Path

import numpy as np

from polygrain.sources.datasets.load import Dataset

COUNTS = Path(__file__).with_name("counts.csv")


def counts(name: str) -> dict[str, int | str]:
    """The published counts of a data set, and the images of each half in its label files."""
    with COUNTS.open(newline="", encoding="utf-8") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    return {key: int(value) if value.isdigit() else value for key, value in rows[name].items()}


def check_counts(dataset: Dataset) -> None:
    """ValueError, with both numbers, if classes or images are not as many as published."""
    expected, is_train = counts(dataset.name), dataset.is_train
    if not expected["train_images"]:  # published as a whole
        is_train = np.zeros(len(is_train), dtype=bool)
    actual: dict[str, int] = {}
    for half, mask in (("train", is_train), ("test", ~is_train)):
        actual |= {f"{half}_classes": len(set(dataset.labels[mask])), f"{half}_images": int(mask.sum())}
    wrong = [
        f"{actual[key]:,} {key.replace('_', ' ')} ({expected[key]:,} in its label files)"
        for key in actual
        if actual[key] != expected[key]
    ]
    if wrong:
        raise ValueError(
            f"{dataset.name} has {', '.join(wrong)}: complete it, or set images.published_counts to false to go on"
        )
