"""The stored outputs of an encoder's blocks as one embedding of unit length: each of unit length, side by side."""

from pathlib import Path

import numpy as np
from jaxtyping import Float32

from polygrain.compute.vectors import unit_rows
from polygrain.store.image_table import open_outputs


class Joined:
    """Embeddings of some rows from several blocks, the last one's output first; computed when they are read."""

    def __init__(self, features: Path, tasks: list[str], blocks: int, rows: np.ndarray) -> None:
        self.outputs, facts = open_outputs(features, tasks)
        self.rows, self.widths = rows, facts["widths"][:blocks]
        self.shape = (len(rows), sum(self.widths))

    def __getitem__(self, part: slice | np.ndarray) -> Float32[np.ndarray, "row dim"]:
        given = self.outputs[self.rows[part]][:, : self.shape[1]].astype(np.float32)
        parts = np.split(given, np.cumsum(self.widths)[:-1], axis=1)
        return unit_rows(np.concatenate([unit_rows(one) for one in parts], 1))
