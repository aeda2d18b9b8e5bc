"""Rows of shard files behind one index, read by mmap; `arrays.open` gives them."""

import os
from pathlib import Path

import google_crc32c
import numpy as np

from polygrain.store.coded import CodedShard, in_threads

LARGE_ROW = 2048  # bytes


class Reader:
    """Stored rows behind one index: `reader[rows]` copies the rows of a slice or an integer array."""

    def __init__(
        self, row_shape: tuple[int, ...], dtype: np.dtype, shards: list[np.ndarray | CodedShard], digest: str
    ) -> None:
        self.dtype, self.shards, self.digest = dtype, shards, digest
        self.starts = np.cumsum([0] + [len(shard) for shard in shards])
        self.shape = (int(self.starts[-1]), *row_shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        rows = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else np.asarray(rows)
        if rows.size and (rows.min() < 0 or rows.max() >= len(self)):
            raise IndexError(f"rows {rows.min()}..{rows.max()} of an array with {len(self)} rows")
        out = np.empty((len(rows), *self.shape[1:]), self.dtype)
        chosen = np.searchsorted(self.starts, rows, side="right") - 1
        offsets = rows - self.starts[chosen]
        if any(isinstance(self.shards[shard], CodedShard) for shard in np.unique(chosen)):

            def copy(i: int) -> None:
                out[i] = self.shards[chosen[i]][int(offsets[i])]

            in_threads(copy, len(rows))
        elif out.nbytes >= LARGE_ROW * len(rows):
            # One copy per row: gathering a shard at a time would copy large rows twice.
            for i, (shard, offset) in enumerate(zip(chosen.tolist(), offsets.tolist(), strict=True)):
                out[i] = self.shards[shard][offset]
        else:
            for shard in np.unique(chosen):
                where = chosen == shard
                out[where] = self.shards[shard][offsets[where]]
        return out


class Chosen:
    """Some rows of stored ones, in float32, read when they are asked for, by slices or by their own numbers."""

    def __init__(self, reader: Reader, rows: np.ndarray) -> None:
        self.reader, self.rows, self.shape = reader, rows, (len(rows), *reader.shape[1:])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: slice | np.ndarray) -> np.ndarray:
        return self.reader[self.rows[part]].astype(np.float32, copy=False)

    def some(self, rows: np.ndarray) -> "Chosen":
        """Some of these rows, by their own numbers."""
        return Chosen(self.reader, self.rows[rows])


def map_shard(
    file: Path, rows: int, row_shape: tuple[int, ...], dtype: np.dtype, chunk_rows: int, chunks: int
) -> np.ndarray:
    """The rows of one shard file as a read-only view; the index at its end must be intact and its chunks contiguous."""
    index_bytes = 16 * chunks + 4
    size = os.path.getsize(file)
    if size < index_bytes:
        raise ValueError(f"{size} bytes")
    data = np.memmap(file, np.uint8, "r")
    tail = data[-index_bytes:].tobytes()
    if google_crc32c.value(tail[:-4]) != int.from_bytes(tail[-4:], "little"):
        raise ValueError("the shard index does not match its checksum")
    used = -(-rows // chunk_rows)
    offsets, lengths = np.frombuffer(tail[:-4], "<u8").reshape(chunks, 2)[:used].T
    length = chunk_rows * int(np.prod(row_shape, dtype=np.int64)) * dtype.itemsize
    if np.any(lengths != length) or np.any(
        offsets != offsets[0] + np.arange(used, dtype=np.uint64) * np.uint64(length)
    ):
        raise ValueError("its chunks are not stored one behind the other")
    start = int(offsets[0])
    values = data[start : start + used * length].view(dtype.newbyteorder("<")).reshape(used * chunk_rows, *row_shape)
    return values[:rows]
