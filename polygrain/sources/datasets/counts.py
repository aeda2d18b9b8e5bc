"""The published counts of public data sets, and those that their label files really give (`counts.csv`)."""

import csv
from pathlib import Path

import numpy as np

from polygrain.sources.datasets.load import Dataset

COUNTS = Path(__file__).with_name("counts.csv")


def counts(name: str) -> dict[str, int | str]:
    """The published counts of a data set, and how many images of each half the published label files really give."""
    with COUNTS.open(newline="", encoding="utf-8") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    return {key: int(value) if value.isdigit() else value for key, value in rows[name].items()}


def describe_count(expected: dict[str, int | str], key: str) -> str:
    """The count that a half must have, and the printed one where the published label files do not give it (Flowers)."""
    printed = expected.get(f"published_{key}", expected[key])
    if printed == expected[key]:
        return f"{expected[key]:,} published"
    return f"{expected[key]:,} in its label files, {printed:,} published"


def check_counts(dataset: Dataset) -> None:
    """ValueError, with both numbers, where classes or images are not as many as published."""
    expected, is_train = counts(dataset.name), dataset.is_train
    if not expected["train_images"]:  # published as a whole
        is_train = np.zeros(len(is_train), dtype=bool)
    met = {}
    for half, mask in (("train", is_train), ("test", ~is_train)):
        met |= {f"{half}_classes": len(set(dataset.labels[mask])), f"{half}_images": int(mask.sum())}
    wrong = [
        f"{met[key]:,} {key.replace('_', ' ')} ({describe_count(expected, key)})"
        for key in met
        if met[key] != expected[key]
    ]
    if wrong:
        raise ValueError(
            f"{dataset.name} has {', '.join(wrong)}: complete it, or set images.published_counts to false to go on"
        )
