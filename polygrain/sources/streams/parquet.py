"""Parquet files of images as Hugging Face lays them: a column `struct<bytes, path>` or of bytes, and perhaps labels.

Read a few rows at a time. The `path` of a row is never followed.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import IOBase
from itertools import islice, repeat

import pyarrow as pa
import pyarrow.parquet as pq

from polygrain.sources.streams.entry import ENTRY_BYTES, Entry, label_of
from polygrain.store.square import Unreadable

BATCH_BYTES = 16 * 2**20
BATCH_ROWS = 256
PAGES = 2**20  # bytes read ahead of a column
LABELS = ("label", "labels", "fine_label", "class", "cls")
MEND = "make or download it again"


@contextmanager
def whole(name: str) -> Iterator[None]:
    """A block that reads the file; ValueError names it where it is damaged or cut off."""
    try:
        yield
    except FileNotFoundError:
        raise  # it vanished, and is not damaged
    except (pa.ArrowException, OSError) as error:
        said = " ".join(str(error)[:200].split())
        raise ValueError(f"{name} is damaged or cut off ({said}); {MEND}") from error


def opened(stream: IOBase, name: str) -> pq.ParquetFile:
    with whole(name):
        return pq.ParquetFile(stream, buffer_size=PAGES, pre_buffer=False)


def count(stream: IOBase, name: str) -> int:
    """The rows that the file says it has, once it has columns to read."""
    file = opened(stream, name)
    columns(file.schema_arrow, name)
    return file.metadata.num_rows


def columns(schema: pa.Schema, name: str) -> tuple[str, str | None]:
    """The column of images, and that of labels where there is one; ValueError where it cannot be told which it is."""
    images = [field.name for field in schema if holds_bytes(field.type)]
    if len(images) > 1 and "image" in images:
        images = ["image"]
    if len(images) != 1:
        raise ValueError(
            f"{name} has {len(images)} columns with images (its columns: {', '.join(schema.names[:20])}): one must be "
            "of bytes, or of bytes and path, and of several one must be named image"
        )
    labels = [label for label in LABELS if label in schema.names and is_label(schema.field(label).type)]
    return images[0], labels[0] if labels else None


def holds_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return kind.get_field_index("bytes") >= 0 and holds_bytes(kind.field("bytes").type)
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def is_label(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)


def class_names(schema: pa.Schema, label: str) -> list[str] | None:
    """The names of numbered classes, where Hugging Face's metadata have them."""
    try:
        said = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"][label]["names"]
        return [label_of(name) for name in said]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def read(stream: IOBase, name: str, number: int, skip: int = 0) -> Iterator[Entry]:
    """The entries of a Parquet file, the file `number` of a stream, without the first `skip`.

    A row's path is the file's name and the row's number.
    """
    file = opened(stream, name)
    image, label = columns(file.schema_arrow, name)
    names = class_names(file.schema_arrow, label) if label else None
    first, groups = 0, list(range(file.num_row_groups))
    while groups and first + file.metadata.row_group(groups[0]).num_rows <= skip:
        first += file.metadata.row_group(groups.pop(0)).num_rows
    rows = islice(cells(file, groups, [image, *filter(None, [label])], name), skip - first, None)
    for index, (content, said) in enumerate(rows, skip):
        path = f"{name}/{index:09d}"
        try:
            yield Entry(number, index, path, class_of(said, names), bytes_of(content))
        except Unreadable as reason:
            yield Entry(number, index, path, "", reason)


def labels(stream: IOBase, name: str) -> Iterator[str]:
    """The class of every row that has one, "" for all where the file has no labels; no image is read."""
    file = opened(stream, name)
    _, label = columns(file.schema_arrow, name)
    if label is None:
        yield from repeat("", file.metadata.num_rows)
        return
    names = class_names(file.schema_arrow, label)
    for said, _ in cells(file, list(range(file.num_row_groups)), [label], name):
        with suppress(Unreadable):
            yield class_of(said, names)


def cells(file: pq.ParquetFile, groups: list[int], wanted: list[str], name: str) -> Iterator[tuple]:
    """(image, label) of every row in these row groups, or what else is wanted."""
    for group in groups:
        said = file.metadata.row_group(group)
        mean = max(1, said.total_byte_size // max(1, said.num_rows))
        with whole(name):
            for batch in file.iter_batches(min(BATCH_ROWS, max(1, BATCH_BYTES // mean)), [group], wanted):
                found = [batch.column(batch.schema.get_field_index(column)) for column in wanted]
                for row in range(len(batch)):
                    yield found[0][row].as_py(), found[1][row].as_py() if len(found) > 1 else None


def class_of(said: int | str | None, names: list[str] | None) -> str:
    if names is not None and isinstance(said, int):
        if not 0 <= said < len(names):
            raise Unreadable(f"its label is {said}, of {len(names)} classes")
        return names[said]
    return label_of(said)


def bytes_of(cell: dict | bytes | None) -> bytes:
    content = cell.get("bytes") if isinstance(cell, dict) else cell
    if not content:
        raise Unreadable("it has no bytes")
    if len(content) > ENTRY_BYTES:
        raise Unreadable(f"it has {len(content):,} bytes, at most {ENTRY_BYTES:,} are read")
    return content
