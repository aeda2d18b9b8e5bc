"""A stored array that several processes write together, whole shards each; the bytes are those that one writes."""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import zarr

from stages.core.compute import processes
from stages.core.compute.blocks import blocks
from stages.core.store import arrays


def write(
    path: Path, rows: int, row_shape: tuple[int, ...], dtype: str, compute: Callable[[slice], Iterable[np.ndarray]]
) -> None:
    """Writes `rows` rows; `compute` yields the blocks of the slice it is given, which is one shard.

    Blocks never reach across shards, so they are the same however many processes there are. Only a number of shards
    above that of the processes keeps all of them busy.
    """
    if processes.rank() == 0:
        writer = arrays.Writer(path, row_shape, dtype)
        writer.array.resize((rows, *row_shape))
    processes.wait()
    array = zarr.open_array(path, mode="r+", config={"write_empty_chunks": True})
    shard_rows = array.shards[0]
    parts, digests = blocks(rows, shard_rows), [np.zeros((0, 32), np.uint8)]
    for part in parts[processes.share(len(parts))]:
        shard = np.ascontiguousarray(np.concatenate(list(compute(part))))
        if shard.dtype != array.dtype or shard.shape != (part.stop - part.start, *row_shape):
            raise ValueError(f"{path.name}: shard {shard.dtype} {shard.shape} where {array.dtype} rows {part} go")
        array[part] = shard
        digests.append(np.frombuffer(hashlib.sha256(shard.data).digest(), np.uint8)[None])
    whole = processes.gather_array(np.concatenate(digests))
    if processes.rank() == 0:
        writer.array.update_attributes({"sha256": [row.tobytes().hex() for row in whole], "complete": True})
