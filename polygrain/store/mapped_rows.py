"""Rows of shard files behind one index, read by mmap; `arrays.open` returns them."""

from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Int64, UInt8

from polygrain.store.coded import CodedShard, in_threads

LARGE_ROW = 2048  # bytes


class Reader:
    """Stored rows behind one index: `reader[rows]` copies the rows of a slice or an integer array.

    Of pictures it gives the centre squares; `whole` gives all that is stored.
    """

    def __init__(self, row_shape: tuple[int, ...], dtype: np.dtype, shards: list[np.ndarray | CodedShard]) -> None:
        self.dtype, self.shards = dtype, shards
        self.starts = np.cumsum([0] + [len(shard) for shard in shards])
        self.shape = (int(self.starts[-1]), *row_shape)

    def __len__(self) -> int:
        return self.shape[0]

    def columns(self, width: int) -> "Reader":
        """The first columns of each row; the others are not read."""
        # Only pictures are coded, and they have no columns.
        return Reader((width,), self.dtype, [shard[:, :width] for shard in self.shards])  # type: ignore[index]

    @cached_property
    def shapes(self) -> Int64[np.ndarray, "image 2"]:
        """Height and width of each stored picture."""
        square = np.array([self.shape[1:3]])
        own = [of.shapes if isinstance(of, CodedShard) else square.repeat(len(of), 0) for of in self.shards]
        return np.concatenate([square[:0], *own])

    def alike(self, rows: Int64[np.ndarray, " row"]) -> list[Int64[np.ndarray, " _"]]:
        """Places in `rows` of pictures of one shape, a list entry for each shape."""
        _, number = np.unique(self.shapes[rows], axis=0, return_inverse=True)
        return [np.flatnonzero(number == one) for one in range(number.max(initial=-1) + 1)]

    def whole(self, rows: Int64[np.ndarray, " row"]) -> UInt8[np.ndarray, "row y x 3"]:
        """Pictures of one shape as they are stored."""
        return self.copied(rows, tuple(self.shapes[rows[0]].tolist()) + self.shape[3:])

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        rows = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else np.asarray(rows)
        if rows.size and (rows.min() < 0 or rows.max() >= len(self)):
            raise IndexError(f"rows {rows.min()}..{rows.max()} of an array with {len(self)} rows")
        return self.copied(rows, self.shape[1:])

    def copied(self, rows: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Rows of this shape; of larger pictures their middle."""
        out = np.empty((len(rows), *shape), self.dtype)
        numbers = np.searchsorted(self.starts, rows, side="right") - 1
        offsets = rows - self.starts[numbers]
        if any(isinstance(self.shards[number], CodedShard) for number in np.unique(numbers)):

            def copy(i: int) -> None:
                out[i] = middle(self.shards[numbers[i]][int(offsets[i])], shape)

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


def middle(picture: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The part of this height and width around the centre."""
    top, left = ((own - wanted) // 2 for own, wanted in zip(picture.shape[:2], shape[:2], strict=True))
    return picture[top : top + shape[0], left : left + shape[1]]


class Subset:
    """Some rows of an array in float32, read on demand, by slices or by their own numbers."""

    def __init__(self, reader: Reader | np.ndarray, rows: np.ndarray) -> None:
        self.reader, self.rows, self.shape = reader, rows, (len(rows), *reader.shape[1:])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: slice | np.ndarray) -> np.ndarray:
        return self.reader[self.rows[part]].astype(np.float32, copy=False)

    def some(self, rows: np.ndarray) -> "Subset":
        """Some of these rows, by their own numbers."""
        return Subset(self.reader, self.rows[rows])


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
