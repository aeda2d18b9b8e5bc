"""A stored array that several processes compute together, whole shards each; the first process writes them."""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from polygrain.compute import processes
from polygrain.compute.blocks import blocks
from polygrain.store import arrays


def write(
    path: Path, rows: int, row_shape: tuple[int, ...], dtype: str, compute: Callable[[slice], Iterable[np.ndarray]]
) -> None:
    """Writes `rows` rows; `compute` yields the blocks of the slice it is given, which is one shard.

    Blocks never reach across shards, so they are the same however many processes there are. Only a number of shards
    above that of the processes keeps all of them busy. The others need no access to the first one's disk.
    """

    def shard(part: slice) -> np.ndarray:
        found = np.concatenate(list(compute(part)))
        if found.dtype != dtype or found.shape != (part.stop - part.start, *row_shape):
            raise ValueError(f"{path.name}: shard {found.dtype} {found.shape} where {dtype} rows {part} go")
        return found

    with arrays.create(path, row_shape, dtype) as writer:
        for block in processes.dealt(blocks(rows, writer.shard_rows), shard):
            writer.append(block)
