"""Parquet files of images as Hugging Face writes them: a column `struct<bytes, path>` or of bytes, and perhaps labels.

Read a few rows at a time. The `path` of a row is never followed.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from io import IOBase
from itertools import repeat
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from polygrain.sources.decode import MOST_BYTES
from polygrain.sources.streams.entry import NAMES, Entry, label_of
from polygrain.store import tables
from polygrain.store.rectangle import Unreadable

BATCH_BYTES = 16 * 2**20
BATCH_ROWS = 256
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


@contextmanager
def opened(stream: IOBase, name: str) -> Iterator[tuple[pq.ParquetFile, str, str | None]]:
    """A file with the names of its columns of images and labels; ValueError if it is damaged or has no such column."""
    try:
        file = pq.ParquetFile(stream, buffer_size=2**20, pre_buffer=False)
        yield file, *columns(file.schema_arrow, name)
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error)[:200].split())
        raise ValueError(f"{name} is damaged or cut off ({reason}); make or download it again") from error


def holds_embeddings(file: Path) -> bool:
    """Whether a file is one that `polygrain embed` wrote (collection/file.py), of embeddings and no images."""
    try:
        return {b"model", b"dim"} <= (pq.read_schema(file).metadata or {}).keys()
    except (OSError, pa.ArrowException):
        return False


def columns(schema: pa.Schema, name: str) -> tuple[str, str | None]:
    """The column of images and, if there is one, of labels; ValueError if the images' cannot be told."""
    tables.require_once(schema, name)
    images = [field.name for field in schema if holds_bytes(field.type)]
    images = ["image"] if "image" in images else images
    if len(images) != 1:
        raise ValueError(
            f"{name} has {len(images)} columns with images; its columns are {tables.described(schema)}: one must be of "
            "bytes, or of bytes and path, and of several one must be named image"
        )
    return images[0], next((label for label in NAMES if label in schema.names and label != images[0]), None)


def described(stream: IOBase, name: str, place: str = "") -> str:
    """Which column is the label, or which columns there are instead; `place` is the file's path below the folder."""
    with opened(stream, name) as (file, image, label):
        others = [column for column in (*file.schema_arrow.names, *keys_in(place)) if column != image]
    if label or label_in(place):
        return f"label: column {label}" if label else f"label: the file's folder, as {PurePosixPath(place).parent}"
    named = f"one would be named {', '.join(NAMES[:-1])} or {NAMES[-1]}"
    return f"no label among its columns ({', '.join(others[: tables.COLUMNS_NAMED])}): {named}" if others else ""


def holds_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return kind.get_field_index("bytes") >= 0 and holds_bytes(kind.field("bytes").type)
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)


def class_names(schema: pa.Schema, label: str | None) -> list[str] | None:
    """The names of numbered classes in Hugging Face's metadata; None without such names."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return [label_of(name) for name in features[label]["names"]]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def keys_in(place: str) -> dict[str, str]:
    """The columns in a file's path, as of label=boots/0.parquet, which Hive and Spark take out of the table."""
    return dict(part.split("=", 1) for part in place.split("/")[:-1] if "=" in part)


def label_in(place: str) -> str | None:
    """The label in a file's path."""
    keys = keys_in(place)
    value = next((keys[key] for key in NAMES if key in keys), HIVE_NULL)
    return None if value == HIVE_NULL else unquote(value)


def count(stream: IOBase, name: str) -> int:
    """The number of rows."""
    with opened(stream, name) as (file, _, _):
        return file.metadata.num_rows


def read(stream: IOBase, name: str, number: int, skip: int = 0) -> Iterator[Entry]:
    """The entries of a Parquet file, the file `number` of a stream, without the first `skip`.

    A row's path is the file's name and the row's number.
    """
    with opened(stream, name) as (file, image, label):
        names = class_names(file.schema_arrow, label)
        first = 0
        for group in range(file.num_row_groups):
            about = file.metadata.row_group(group)
            if first + about.num_rows > skip:
                size = max(1, about.total_byte_size // max(1, about.num_rows))
                rows = cells(file, group, [image, label], min(BATCH_ROWS, max(1, BATCH_BYTES // size)))
                for index, (cell, value) in enumerate(rows, first):
                    if index >= skip:
                        place = (number, index, f"{name}/{index:09d}")
                        yield entry_of(cell, value if label else label_in(name), names, place)
            first += about.num_rows


def labels(stream: IOBase, name: str, place: str = "") -> Iterator[str | Unreadable]:
    """The class of every row, "" if it has none, or why it is left out; no image is read. `place` as `described`."""
    with opened(stream, name) as (file, _, label):
        names = class_names(file.schema_arrow, label)
        for group in range(file.num_row_groups):
            count = file.metadata.row_group(group).num_rows
            values = cells(file, group, [label, None], BATCH_ROWS) if label else repeat((label_in(place), None), count)
            for value, _ in values:
                entry = entry_of(b"unread", value, names, (0, 0, ""))
                yield entry.content if isinstance(entry.content, Unreadable) else entry.class_name


def cells(file: pq.ParquetFile, group: int, names: list[str | None], rows: int) -> Iterator[tuple[Any, ...]]:
    """The values of two columns, row by row; None for a column without a name."""
    columns = [name for name in names if name]
    for batch in file.iter_batches(rows, [group], columns):
        values = [batch.column(batch.schema.get_field_index(name)) if name else None for name in names]
        for row in range(len(batch)):
            yield tuple(column[row].as_py() if column is not None else None for column in values)


def entry_of(
    cell: dict[str, Any] | bytes | None, label: object, names: list[str] | None, place: tuple[int, int, str]
) -> Entry:
    content = cell.get("bytes") if isinstance(cell, dict) else cell
    try:
        if names is not None and isinstance(label, int):
            if not 0 <= label < len(names):
                raise Unreadable(f"its label is {label}, of {len(names)} classes")
            label = names[label]
        if not content and isinstance(cell, dict) and cell.get("path"):
            raise Unreadable("it holds a path in place of the image's bytes; write the bytes into the file")
        if not content or len(content) > MOST_BYTES:
            raise Unreadable(f"it has {len(content or b''):,} bytes, 1 to {MOST_BYTES:,} are read")
        return Entry(*place, label_of(label), content)
    except Unreadable as reason:
        return Entry(*place, "", reason)
