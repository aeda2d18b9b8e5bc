"""Rows of shard files behind one index, read by mmap; `arrays.open` returns them."""

from pathlib import Path

import numpy as np

from polygrain.store.coded import CodedShard, in_threads

LARGE_ROW = 2048  # bytes


class Reader:
    """Stored rows behind one index: `reader[rows]` copies the rows of a slice or an integer array."""

    def __init__(self, row_shape: tuple[int, ...], dtype: np.dtype, shards: list[np.ndarray | CodedShard]) -> None:
        self.dtype, self.shards = dtype, shards
        self.starts = np.cumsum([0] + [len(shard) for shard in shards])
        self.shape = (int(self.starts[-1]), *row_shape)

    def __len__(self) -> int:
        return self.shape[0]

    def columns(self, width: int) -> "Reader":
        """The first columns of each row; the others are not read."""
        # Only squares are coded, and they have no columns.
        return Reader((width,), self.dtype, [shard[:, :width] for shard in self.shards])  # type: ignore[index]

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        rows = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else np.asarray(rows)
        if rows.size and (rows.min() < 0 or rows.max() >= len(self)):
            raise IndexError(f"rows {rows.min()}..{rows.max()} of an array with {len(self)} rows")
        out = np.empty((len(rows), *self.shape[1:]), self.dtype)
        numbers = np.searchsorted(self.starts, rows, side="right") - 1
        offsets = rows - self.starts[numbers]
        if any(isinstance(self.shards[number], CodedShard) for number in np.unique(numbers)):

            def copy(i: int) -> None:
                out[i] = self.shards[numbers[i]][int(offsets[i])]

            in_threads(copy, len(rows))
        elif out.nbytes >= LARGE_ROW * len(rows):
            # One copy per row: gathering a shard at a time would copy large rows twice.
            for i, (number, offset) in enumerate(zip(numbers.tolist(), offsets.tolist(), strict=True)):
                out[i] = self.shards[number][offset]
        else:
            for number in np.unique(numbers):
                where = numbers == number
                out[where] = self.shards[number][offsets[where]]
        return out


class Chosen:
    """Some rows of an array in float32, read on demand, by slices or by their own numbers."""

    def __init__(self, reader: Reader | np.ndarray, rows: np.ndarray) -> None:
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
    """The rows of one shard file as a read-only view; ValueError if its chunks do not lie one behind the other."""
    data, index_bytes = np.memmap(file, np.uint8, "r"), 16 * chunks + 4
    if data.size < index_bytes:
        raise ValueError(f"it has {data.size} bytes")
    used = -(-rows // chunk_rows)
    index = data[-index_bytes:-4].tobytes()
    places = np.frombuffer(index, "<u8").reshape(chunks, 2)[:used].astype(np.int64)
    length = chunk_rows * int(np.prod(row_shape, dtype=np.int64)) * dtype.itemsize
    start = int(places[0, 0])
    expected = np.stack([start + length * np.arange(used), np.full(used, length)], 1)
    if start < 0 or start + used * length > data.size - index_bytes or not np.array_equal(places, expected):
        raise ValueError("its chunks do not lie one behind the other")
    chunks_read = data[start : start + used * length].view(dtype.newbyteorder("<"))
    return np.asarray(chunks_read.reshape(used * chunk_rows, *row_shape)[:rows])
