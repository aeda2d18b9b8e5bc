"""The changes that bring a database from the rows of an earlier collection to those of a newer one."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32

from polygrain.collection.file import GROUP, File
from polygrain.collection.update import STILL
from polygrain.compute.blocks import blocks


class Changes(NamedTuple):
    """Rows to write, in place of earlier ones of the same paths, in the newer order; and paths to delete."""

    paths: list[str]
    rows: Float32[np.ndarray, "row dim"]
    deleted: list[str]


def changes(now: File, before: File | None) -> Changes:
    """Searched rows that are new or have moved by more than `STILL`; all, where another model made the earlier ones."""
    paths, rows = now.paths(), now.rows("searched")
    there = {path: row for row, path in enumerate(before.paths() if before else [])}
    places, here = np.array([there.get(path, -1) for path in paths]), {*paths}
    sent = places < 0
    if before and (before.facts.model, before.facts.dim) == (now.facts.model, now.facts.dim):
        earlier = before.rows("searched")
        for part in blocks(len(rows), GROUP):
            sent[part] |= np.linalg.norm(rows[part] - earlier[places[part]], axis=1) > STILL
    else:
        sent[:] = True
    deleted = [path for path in there if path not in here]
    return Changes([paths[row] for row in np.flatnonzero(sent)], rows[sent], deleted)
