"""Vectors of any encoder behind a layer of their own, and smoothed: an array or a table in, the same kind out."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
from jaxtyping import Float32

from polygrain.collection.collection import Collection
from polygrain.collection.file import has_names, lists, require_free
from polygrain.collection.postprocessing.comparison import directions
from polygrain.store.drafts import drafted
from polygrain.store.reading import read_lines, reading, starts_with
from polygrain.store.tables import COLUMNS_NAMED, PARQUET, described, require_once

READABLE = "give a NumPy array (.npy or .npz, a row for each image) or a table (Parquet) with a column of vectors"
LINES = "give a text in UTF-8 with the path of an image on each line"
COLUMN = "embedding"


class Vectors(NamedTuple):
    """Rows of unit length, and the table they came with."""

    rows: Float32[np.ndarray, "row dim"]
    table: pa.Table


def smooth_file(
    source: Path, output: Path, alike: int | None = None, column: str | None = None, paths: Path | None = None
) -> Collection:
    """Writes the vectors in a file as a collection has them, as an array or a table, and beside it their layer.

    A table keeps its columns and gets `searched`, and `plain` where smoothing made another row of it. `column`: where
    its vectors are. `paths`: of an array, a text with a line for each row. ValueError before anything is written.
    """
    if output.suffix not in (".npy", ".parquet"):
        raise ValueError(f"{output} ends in neither .npy nor .parquet: name one of these")
    if output.exists() and source.exists() and output.samefile(source):
        raise ValueError(f"{output} is the input, and would lose its vectors: name another file")
    if not output.parent.is_dir():
        raise ValueError(f"{output.parent} is not a folder: make it, or choose another")
    # Opened before the work, which is long: the folder may be one that nothing can be written to.
    with drafted(output) as draft, draft.open("wb") as stream:
        (rows, table), is_table = read(source, column, paths), output.suffix == ".parquet"
        if is_table:
            require_free(table.schema, source)
        names = table["path"].to_pylist() if is_table and "path" in table.column_names else None
        if names and has_names(table) and len({*names}) < len(names):
            names = None  # several rows of one image, say: they keep their names in the table
        found = Collection.of_vectors(rows, names, alike)
        with found.maker.kept_beside(output):
            if is_table:
                found.file.within(table).write(draft, found.facts)
            else:
                np.save(stream, found.rows)
    return found


def read(source: Path, column: str | None = None, paths: Path | None = None) -> Vectors:
    """The vectors in a file; its first bytes tell its kind. ValueError says what does not fit."""
    with reading(source, READABLE):
        is_table = source.is_dir() or starts_with(source, PARQUET)
        if not is_table and not starts_with(source, b"\x93NUMPY", b"PK"):
            raise ValueError("it is neither an array nor a table")
    if not is_table:
        rows, names = directions(array_in(source, column), str(source)), read_lines(paths, LINES) if paths else None
        if names is not None and len(names) != len(rows):
            raise ValueError(f"{source} has {len(rows):,} rows, {paths} {len(names):,} lines: give a line for each row")
        columns = {"path": names} if names is not None else {}
        return Vectors(rows, pa.table(columns | {COLUMN: lists(rows)}))
    if paths is not None:
        raise ValueError(f"{source} is a table with names of its own: --paths is for an array")
    with reading(source, READABLE):
        # `read_table` takes a folder of parts, too, but no column that is there twice.
        table = pq.read_table(source) if source.is_dir() else pq.ParquetFile(source).read()
    require_once(table.schema, str(source))
    name = column_of(table, source, column)
    where = f"{source}, column {name},"
    return Vectors(directions(array_of(table[name], where), where), table)


def array_in(source: Path, name: str | None) -> np.ndarray:
    """The numbers of a .npy, or of a .npz: the array of this name, else its only one."""
    with reading(source, READABLE), source.open("rb") as stream:
        array, names = np.load(stream, allow_pickle=False), list[str | None]([None])
        if not isinstance(array, np.ndarray):
            names = [entry.removesuffix(".npy") for entry in array.zip.namelist() if entry.endswith(".npy")]
            if not names:
                raise ValueError("it holds no array")
            name = names[0] if name is None and len(names) == 1 else name
            array = array[name] if name in names else np.empty(0)
        if array.dtype.kind not in "fiu":
            raise ValueError(f"it holds {array.dtype}, not numbers")
    if name not in names:
        held = ", ".join(filter(None, names[:COLUMNS_NAMED]))
        held = f"{held}: name one of these" if held else "one array: do not name it"
        raise ValueError(f"{source} holds {held} with --column")
    return array


def column_of(table: pa.Table, source: Path, column: str | None) -> str:
    """The name of the column of vectors: the one asked for, else `embedding`, else the only one of lists."""
    kinds = {field.name: field.type for field in table.schema}
    known = [name for name, kind in kinds.items() if is_list(kind)]
    if column is None:
        column = COLUMN if COLUMN in known else known[0] if len(known) == 1 else None
    if column is None or column not in known:
        asked = f"no column {column!r}" if column is not None else f"{'more than one' if known else 'no'} column"
        lists = "make one of lists of numbers (`json.loads` makes them of text such as '[0.1, 0.2]')"
        remedy = f"name one of {', '.join(known)} with --column" if known else lists
        raise ValueError(f"{source} has {asked} of vectors; its columns are {described(table.schema)}: {remedy}")
    return column


def is_list(kind: pa.DataType) -> bool:
    """Whether a column holds lists of numbers, of any of Arrow's kinds, or tensors stored as such."""
    kind = getattr(kind, "storage_type", kind)
    value = getattr(kind, "value_type", None) if pa.types.is_nested(kind) else None
    return value is not None and (pa.types.is_floating(value) or pa.types.is_integer(value))


def array_of(column: pa.ChunkedArray, name: str) -> np.ndarray:
    """Lists of one length as an array `row dim`."""
    if column.null_count or not len(column):
        raise ValueError(f"{name} has {len(column):,} rows, {column.null_count:,} without a vector: give one for each")
    column = column.cast(getattr(column.type, "storage_type", column.type))
    lengths = pa.compute.list_value_length(column).unique().to_pylist()
    if len(lengths) > 1:
        raise ValueError(f"{name} has vectors of {min(lengths)} and of {max(lengths)} numbers: give all one length")
    return np.concatenate([chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks]).reshape(
        len(column), lengths[0]
    )
