"""The labelled images of one folder, as metric learning sees them."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int64

from polygrain.store.image_table import read_table


class Images(NamedTuple):
    """Of each image its class number, its split (train, test, query, gallery) and its width over its height; `names` by
    class number."""

    labels: Int64[np.ndarray, " image"]
    splits: np.ndarray
    names: list[str]
    aspects: Float32[np.ndarray, " image"]


def read_images(folder: Path) -> Images:
    """The table of a task's images, or of collages; ValueError where they have no labels."""
    table = read_table(folder)
    labels = table["label"].to_numpy().astype(np.int64)
    if (labels < 0).any():
        raise ValueError(f"{folder} holds images without a class; metric learning needs <root>/<class>/<image>")
    names = [""] * (int(labels.max()) + 1)
    for label, name in zip(labels.tolist(), table["class_name"].to_pylist(), strict=True):
        names[label] = name
    aspects = table["width"].to_numpy() / table["height"].to_numpy()
    return Images(labels, np.array(table["split"].to_pylist()), names, aspects.astype(np.float32))
