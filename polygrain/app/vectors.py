"""Vectors of any encoder, smoothed by each other: a NumPy array or a Parquet table in, the same kind out."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float32

from polygrain.app.embedding import smoothed_columns
from polygrain.retrieval.smoothing import Smoothing
from polygrain.retrieval.smoothing_choice import GRAINED, directions
from polygrain.store.drafts import drafted
from polygrain.store.reading import read_lines, reading
from polygrain.store.tables import described, require_once

READABLE = "give a NumPy array (.npy, a row for each image) or a table (.parquet) with a column of vectors"
LINES = "give a text in UTF-8 with the path of an image on each line"
COLUMN, SMOOTHED = "embedding", "smoothed"


class Vectors(NamedTuple):
    """Rows of unit length, and the table they came with."""

    rows: Float32[np.ndarray, "row dim"]
    table: pa.Table


def smooth_file(
    source: Path, output: Path, alike: int | None = None, column: str | None = None, paths: Path | None = None
) -> tuple[int, Smoothing]:
    """Writes smoothed vectors, and returns how many there are and how they were smoothed, `smoothing_choice.smooth`.

    A table keeps its columns and gets one more, `smoothed`; none where nothing is smoothed. `column`: where its vectors
    are. `paths`: of an array, a text with a line for each row. ValueError before anything is written.
    """
    if output.suffix not in (".npy", ".parquet"):
        raise ValueError(f"{output} ends in neither .npy nor .parquet: name one of these")
    if output.exists() and source.exists() and output.samefile(source):
        raise ValueError(f"{output} is what is read, and would lose the vectors as they were: name another file")
    if not output.parent.is_dir():
        raise ValueError(f"{output.parent} is not a folder: make it, or choose another")
    vectors = read(source, column, paths)
    columns, smoothing = smoothed_columns(vectors.rows, False, alike, None, GRAINED)
    result = columns.get(SMOOTHED)
    with drafted(output) as draft, draft.open("wb") as stream:
        if output.suffix == ".npy":
            np.save(stream, vectors.rows if result is None else result)
        else:
            pq.write_table(with_smoothed(vectors, result, smoothing), stream)
    return len(vectors.rows), smoothing


def read(source: Path, column: str | None = None, paths: Path | None = None) -> Vectors:
    """The vectors in a file; ValueError says what does not fit."""
    if source.suffix == ".npy":
        if column is not None:
            raise ValueError(f"{source} has no columns: --column is for a table")
        with reading(source, READABLE):
            array = np.load(source, allow_pickle=False)
            if array.dtype.kind not in "fiu":
                raise ValueError(f"it holds {array.dtype}, not numbers")
        rows, names = directions(array, str(source)), read_lines(paths, LINES) if paths else None
        if names is not None and len(names) != len(rows):
            raise ValueError(f"{source} has {len(rows):,} rows, {paths} {len(names):,} lines: give a line for each row")
        columns = {"path": names} if names is not None else {}
        return Vectors(rows, pa.table(columns | {COLUMN: lists(rows)}))
    if paths is not None:
        raise ValueError(f"{source} is a table, whose rows name their images themselves: --paths is for a .npy")
    with reading(source, READABLE):
        # `read_table` takes a folder of parts, too, but no column that is there twice.
        table = pq.read_table(source) if source.is_dir() else pq.ParquetFile(source).read()
    require_once(table.schema, str(source))
    name = column_of(table, source, column)
    where = f"{source}, column {name},"
    return Vectors(directions(array_of(table[name], where), where), table)


def column_of(table: pa.Table, source: Path, column: str | None) -> str:
    """The name of the column of vectors: the one asked for, else `embedding`, else the only one of lists."""
    kinds = {field.name: field.type for field in table.schema}
    known = [name for name, kind in kinds.items() if is_list(kind)]
    if column is None:
        column = COLUMN if COLUMN in known else known[0] if len(known) == 1 else None
    if column not in known:
        asked = f"no column {column!r}" if column is not None else f"{'more than one' if known else 'no'} column"
        lists = "make one of lists of numbers (`json.loads` makes them of text such as '[0.1, 0.2]')"
        remedy = f"name one of {', '.join(known)} with --column" if known else lists
        raise ValueError(f"{source} has {asked} of vectors; its columns are {described(table.schema)}: {remedy}")
    return column


def is_list(kind: pa.DataType) -> bool:
    is_nested = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return is_nested and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type))


def array_of(column: pa.ChunkedArray, name: str) -> np.ndarray:
    """Lists of one length as an array `row dim`."""
    if column.null_count or not len(column):
        raise ValueError(f"{name} has {len(column):,} rows, {column.null_count:,} without a vector: give one for each")
    lengths = pa.compute.list_value_length(column).unique().to_pylist()
    if len(lengths) > 1:
        raise ValueError(f"{name} has vectors of {min(lengths)} and of {max(lengths)} numbers: give all one length")
    return np.concatenate([chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks]).reshape(
        len(column), lengths[0]
    )


def with_smoothed(vectors: Vectors, smoothed: np.ndarray | None, smoothing: Smoothing) -> pa.Table:
    """The table with the column of smoothed rows, if there are any, in place of earlier ones; its metadata say how."""
    table = vectors.table
    if SMOOTHED in table.column_names:
        table = table.drop_columns(SMOOTHED)
    if smoothed is not None:
        table = table.append_column(SMOOTHED, lists(smoothed))
    return table.replace_schema_metadata((table.schema.metadata or {}) | {"smoothing": json.dumps(asdict(smoothing))})


def lists(rows: Float32[np.ndarray, "row dim"]) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(np.ravel(rows), rows.shape[1])
