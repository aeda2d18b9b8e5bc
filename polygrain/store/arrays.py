"""The array store: every array that crosses a stage boundary, written in whole shards, read by mmap.

A stored array is a Zarr v3 folder that any Zarr library can open. Its shards hold uncompressed chunks one behind the
other, so a row lies at a computable offset: shuffled batches cost no more than with a `numpy.memmap`, where Zarr's own
indexing decodes chunk by chunk. Zarr reads a missing shard as zeros, so `open` refuses an array that is not complete.
Pictures may be coded as JPEG or WebP, and are rectangles of several shapes or squares (`coded.py`).
"""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from polygrain.store import coded
from polygrain.store.coded import CodedShard, Coding
from polygrain.store.mapped_rows import Reader as Reader
from polygrain.store.mapped_rows import map_shard
from polygrain.store.reading import reading, remedy_for

SHARD_BYTES = 64 * 2**20
# Rows of a chunk, where the writer does not say: of numbers, vectors, several vectors, pictures.
CHUNK_ROWS = 4096, 256, 64, 1


class Writer:
    """Appends blocks of rows; each shard is written once, whole.

    `done` counts the full shards that an earlier writer left at `path`; this one continues after them.
    """

    def __init__(
        self,
        path: Path,
        row_shape: tuple[int, ...],
        dtype: str,
        coding: Coding | None = None,
        done: int = 0,
        dims: str = "",
        chunk: int | None = None,
    ) -> None:
        import zarr  # half a second, and readers need none of it
        from zarr.codecs import Crc32cCodec

        from polygrain.store.picture_codec import PictureCodec

        if dims and len(row_shape) + 1 != len(dims.split()):
            raise ValueError(f"{path.name}: rows of shape {row_shape}, declared {dims}")
        if coding and len(row_shape) != 3:
            raise ValueError(f"{path.name}: only pictures can be stored as {coding.format}")
        chunk = chunk or CHUNK_ROWS[len(row_shape)]
        row_bytes = max(1, int(np.prod(row_shape, dtype=np.int64)) * np.dtype(dtype).itemsize)
        if coding:
            row_bytes = coding.estimate(coding.side or row_shape[0])
        self.shard_rows = chunk * max(1, SHARD_BYTES // (chunk * row_bytes))
        self.path, self.row_shape, self.dtype, self.coding = path, tuple(row_shape), np.dtype(dtype), coding
        self.pending: list[Any] = []  # coded pictures, or blocks of rows
        self.shapes: list[tuple[int, ...]] = []  # of coded rectangles
        self.waiting = 0
        self.shards = done
        self.rows = done * self.shard_rows
        if done:
            remove_unfinished(path, done)
            self.array = zarr.open_array(path, mode="r+", config={"write_empty_chunks": True})
            self.array.resize((self.rows, *row_shape))
            return
        self.array = zarr.create_array(
            path,
            shape=(0, *row_shape),
            chunks=(chunk, *row_shape),
            shards=(self.shard_rows, *row_shape),
            dtype=dtype,
            serializer=PictureCodec(*coding) if coding else "auto",
            compressors=Crc32cCodec() if coding else None,
            fill_value=0,
            dimension_names=dims.split() or None,
            config={"write_empty_chunks": True},
        )

    @property
    def room(self) -> int:
        """Rows that fit into the current shard."""
        return self.shard_rows - self.waiting

    def append(self, block: np.ndarray | Sequence[np.ndarray]) -> None:
        """Adds rows at the end; `block` is `row ...` of the array's dtype, or a list of rectangles."""
        rectangles = self.coding.side if self.coding else None
        if rectangles:
            fits = all(min(row.shape[:2]) == rectangles and row.dtype == self.dtype for row in block)
        else:
            block = np.asarray(block)
            fits = block.shape[1:] == self.row_shape and block.dtype == self.dtype
        if not fits:
            shape = {row.shape for row in block}
            raise ValueError(f"rows of {shape} {block[0].dtype}, the array holds rows {self.row_shape} {self.dtype}")
        while len(block):
            taken, block = block[: self.room], block[self.room :]
            self.pending += coded.encode_all(taken, self.coding) if self.coding else [np.array(taken)]
            self.shapes += [row.shape[:2] for row in taken] if rectangles else []
            self.waiting += len(taken)
            if not self.room:
                self.flush()

    def flush(self) -> None:
        if not self.waiting:
            return
        self.array.resize((self.rows + self.waiting, *self.row_shape))
        if self.coding:
            file = shard_file(self.path, self.shards, len(self.row_shape))
            file.parent.mkdir(parents=True, exist_ok=True)
            shapes = np.array(self.shapes, "<u2").tobytes()
            file.write_bytes(coded.shard(self.pending, self.shard_rows, shapes))
        else:
            self.array[self.rows :] = np.concatenate(self.pending)
        self.rows, self.shards = self.rows + self.waiting, self.shards + 1
        self.waiting, self.pending, self.shapes = 0, [], []

    def close(self) -> None:
        self.flush()
        self.array.update_attributes({"complete": True})


def remove_unfinished(path: Path, shards: int) -> None:
    """Removes a killed writer's files beyond `shards` complete shards, and half-written ones."""
    for folder in (path / "c").iterdir():
        if int(folder.name) >= shards:
            shutil.rmtree(folder)
    for file in path.rglob("*.partial"):
        file.unlink()


def shard_file(path: Path, number: int, axes: int) -> Path:
    """The file of a shard, by its number and the number of axes of a row."""
    return path / "c" / str(number) / "/".join(["0"] * axes)


@contextmanager
def create(
    path: Path,
    row_shape: tuple[int, ...],
    dtype: str,
    dims: str = "",
    coding: Coding | None = None,
    chunk: int | None = None,
) -> Iterator[Writer]:
    """A writer for the array `path`; marked complete only if the block ends well.

    `dims` are the names of its axes, rows first; `chunk` rows lie together, as `CHUNK_ROWS` says where it is None.
    """
    writer = Writer(path, row_shape, dtype, coding, dims=dims, chunk=chunk)
    yield writer
    writer.close()


def write(path: Path, values: np.ndarray, dims: str = "", chunk: int | None = None) -> None:
    """Writes a whole array that is already in memory; `dims` and `chunk` as in `create`."""
    with create(path, values.shape[1:], str(values.dtype), dims, chunk=chunk) as writer:
        writer.append(values)


def open(path: Path) -> Reader:
    """A complete stored array, memory-mapped; ValueError says what is missing or damaged and what to do about it."""
    remedy = remedy_for(path.parent)
    with reading(path, remedy):
        meta = json.loads((path / "zarr.json").read_text())
        shape, dtype = tuple(meta["shape"]), np.dtype(meta["data_type"])
        shard_rows = meta["chunk_grid"]["configuration"]["chunk_shape"][0]
        (sharding,) = meta["codecs"]
        chunk_rows = sharding["configuration"]["chunk_shape"][0]
        codecs = sharding["configuration"]["codecs"]
        raw, coding = [codec["name"] for codec in codecs] == ["bytes"], coded.coding_of(codecs)
        if meta["attributes"].get("complete") is not True:
            raise ValueError("its writer did not finish")
    if not raw and not coding:
        raise ValueError(f"{path} is in no layout that is known here; {remedy}")
    count = -(-shape[0] // shard_rows)
    row_shape = (coding.side, coding.side, 3) if coding and coding.side else shape[1:]
    shards: list[np.ndarray | CodedShard] = []
    for i in range(count):
        rows = min(shard_rows, shape[0] - i * shard_rows)
        file, name = shard_file(path, i, len(shape) - 1), f"{path}: shard {i} of {count}"
        with reading(name, remedy):
            if coding:
                shards.append(CodedShard(file, rows, shard_rows, row_shape[0], coding, name, remedy))
            else:
                shards.append(map_shard(file, rows, shape[1:], dtype, chunk_rows, shard_rows // chunk_rows))
    return Reader(row_shape, dtype, shards)


def concatenate(readers: list[Reader]) -> Reader:
    """Several stored arrays as one, rows in the order given; nothing is copied."""
    shapes = {reader.shape[1:] for reader in readers}
    if len(shapes) != 1:
        raise ValueError(f"arrays with rows of different shapes {sorted(shapes)} cannot be read as one")
    dtype = np.result_type(*(reader.dtype for reader in readers))
    return Reader(shapes.pop(), dtype, [shard for reader in readers for shard in reader.shards])
