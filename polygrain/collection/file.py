"""The file of a collection: a Parquet table with a row for each image, that any reader of Parquet can open.

path        below the folder `root`
searched    fixed-size list of float32, of unit length: the row that a query is compared with
plain       the row as it asks, where smoothing made another of it; else it asks as it is searched
state       size and times of the image file, where it may change
sha256      of the image file, by which it is known in another folder

The metadata are `Facts`. No other module names a column or a key. Files of the first version, whose plain rows were
called `embedding` and whose smoothed ones `smoothed`, are read, too.
"""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float32

from polygrain.collection.postprocessing.comparison import Comparison
from polygrain.compute.blocks import blocks
from polygrain.store.drafts import drafted
from polygrain.store.reading import reading
from polygrain.store.tables import described

# Rows of a row group.
GROUP = 1024
VERSION = "2"
STREAMED = (
    "of zips and all other sources of images `polygrain new` and `polygrain run` make "
    "data/gallery/<task>/embeddings.parquet, beside data/images/<task>"
)
REMEDY = "make it with `polygrain embed DIR -o embeddings.parquet`, and delete it before if it is damaged"
Columns = Mapping[str, Sequence[str] | np.ndarray]
PATHS, TEXT = ("root", "folder", "source"), ("path", "state", "sha256")
UNPACKED = {"compression": "none", "use_dictionary": False}


@dataclass(frozen=True)
class Facts:
    """The metadata of a file. Folders are absolute; in the file they may be relative to it."""

    model: str
    """digest of the model that made them, or of the layer"""
    dim: int
    comparison: Comparison
    root: Path | None = None
    """the folder of the images; None of rows that are of none"""
    images: str = ""
    """digest of the names and states of all image files"""
    folder: Path | None = None
    """of the model"""
    source: Path | None = None
    """the CSV that names the images"""
    task: str = ""
    """of the model: as which these images are compared"""
    alike: int | None = None
    """about how many images show the same thing, where a user said it"""
    count: int = 0
    """rows by which it was chosen how they are compared"""
    smooth: str = ""
    """"no", where smoothed rows are not wanted"""

    def encoded(self) -> dict[str, bytes]:
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        given |= {"version": VERSION, "comparison": self.comparison.to_json()}
        return {name: os.fsencode(str(value)) for name, value in given.items() if value not in (None, "")}

    @classmethod
    def decoded(cls, values: Mapping[bytes, bytes], beside: Path, count: int) -> "Facts":
        """The facts in the metadata of a file of `count` rows in the folder `beside`; ValueError where some lack."""
        given = {name.decode("utf-8", "replace"): value for name, value in values.items()}
        if missing := {"model", "dim", "comparison"} - given.keys():
            raise ValueError(f"its metadata lack {', '.join(sorted(missing))}, as those of an earlier version do")
        found: dict[str, Any] = {
            name: Path(os.path.abspath(beside / os.fsdecode(given[name]))) for name in PATHS if given.get(name)
        }
        named = ("model", "images", "task", "smooth")
        found |= {name: given.get(name, b"").decode("utf-8", "replace") for name in named}
        comparison = Comparison.from_json(given["comparison"])
        alike = int(given["alike"]) if "alike" in given else None if "version" in given else comparison.alike
        return cls(
            **found,
            dim=int(given["dim"]),
            comparison=comparison,
            alike=alike,
            # A file of the first version that is not smoothed may have been chosen when it had few rows.
            count=int(given.get("count", count if comparison.smoothing.strength else 0)),
        )


KEYS = {field.name for field in fields(Facts)}


class File:
    """An opened collection: `facts`, read once, and columns, read when they are asked for.

    It stays as it was opened, whatever is written in its place. The file may be anyone's: ValueError where it is
    missing, damaged or senseless.
    """

    def __init__(self, place: Path, table: pa.Table | None = None) -> None:
        self.place, self.lock = place, threading.Lock()  # the page asks from several threads
        with reading(place, REMEDY):
            self.table = pq.ParquetFile(place) if table is None else table
            self.schema: pa.Schema = self.table.schema_arrow if table is None else table.schema
        metadata, names = self.schema.metadata or {}, self.schema.names
        if b"model" not in metadata:
            raise ValueError(f"{place} is no collection: {REMEDY}; {STREAMED}")
        with reading(place, REMEDY):
            self.count: int = self.table.metadata.num_rows if table is None else len(table)
            self.facts = Facts.decoded(metadata, place.parent, self.count)
            plain, searched = ("plain", "searched") if b"version" in metadata else ("embedding", "smoothed")
            self.is_smoothed = {plain, searched} <= {*names}
            self.names = {
                "plain": plain if plain in names else searched,
                "searched": searched if searched in names else plain,
            }
            kind, mean = rows_of(self.facts.dim), self.facts.comparison.mean
            wrong = [
                name for name in self.names.values() if names.count(name) != 1 or self.schema.field(name).type != kind
            ]
            if wrong or not self.count or names.count("path") != 1:
                raise ValueError(f"it holds {self.count} rows of {described(self.schema)}")
            if len(mean) not in (0, self.facts.dim):
                raise ValueError(f"its mean has {len(mean)} numbers, a row {self.facts.dim}")

    @property
    def comparison(self) -> Comparison:
        """The comparison of its rows: without smoothing, where the file has no smoothed rows."""
        return self.facts.comparison if self.is_smoothed else self.facts.comparison.unsmoothed()

    def groups(self, *columns: str) -> Iterator[pa.RecordBatch]:
        """Some columns, `GROUP` rows at once; the rows are called `plain` and `searched` in any version."""
        given = [self.names.get(name, name) for name in columns]
        if isinstance(self.table, pa.Table):
            yield from self.table.select(given).to_batches(GROUP)
        else:
            yield from self.table.iter_batches(GROUP, columns=given)

    def text(self, name: str) -> list[str]:
        """A column of text; "" in each row where the file has no such column."""
        if name not in self.schema.names:
            return [""] * self.count
        with self.lock, reading(self.place, REMEDY):
            return [text for group in self.groups(name) for text in group.column(0).to_pylist()]

    def paths(self) -> list[str]:
        paths = self.text("path")
        if self.facts.root is None:  # vectors may have any name
            return paths
        with reading(self.place, REMEDY):
            if wrong := [path for path in paths if not path or path.startswith("/") or ".." in path.split("/")]:
                raise ValueError(f"{wrong[0]!r:.200} is no path below its folder")
        return paths

    def rows(self, name: str) -> Float32[np.ndarray, "row dim"]:
        """The rows `searched` or `plain`."""
        rows, start = np.empty((self.count, self.facts.dim), np.float32), 0
        with self.lock, reading(self.place, REMEDY):
            for group in self.groups(name):
                rows[start : start + len(group)] = numbers(group.column(0), self.facts.dim)
                start += len(group)
            lengths = np.linalg.norm(rows, axis=1)
            # Of an image in which a last layer sees nothing, 0 is left.
            if not np.all((np.abs(lengths - 1) < 1e-3) | (lengths == 0)):
                raise ValueError("not all of its rows have unit length")
        return rows

    def within(self, table: pa.Table) -> "File":
        """These rows, which are in memory, behind the columns of a table with as many, whose other metadata stay."""
        own = {name: self.table[name] for name in self.schema.names}
        if has_names(table):
            del own["path"]
        table = table.drop_columns([name for name in {*own, "plain"} if name in table.column_names])
        for name, column in own.items():
            table = table.append_column(name, column)
        return File(self.place, table.replace_schema_metadata((table.schema.metadata or {}) | self.schema.metadata))

    def write(self, place: Path, facts: Facts) -> None:
        """Writes the same columns elsewhere, or with other facts."""
        called = {name: called for called, name in self.names.items()}
        others = {key: value for key, value in (self.schema.metadata or {}).items() if key.decode() not in KEYS}
        kinds = [field.with_name(called.get(field.name, field.name)) for field in self.schema]
        kinds = pa.schema(kinds, others | facts.encoded())
        with drafted(place) as draft, pq.ParquetWriter(draft, kinds, **UNPACKED) as writer:
            for group in self.groups(*self.schema.names):
                writer.write_batch(pa.RecordBatch.from_arrays(group.columns, schema=kinds))


def has_names(table: pa.Table) -> bool:
    """Whether a table has a text in each row of a column `path`."""
    return "path" in table.column_names and pa.types.is_string(table["path"].type) and not table["path"].null_count


def earlier(place: Path) -> File | None:
    """The file that is in a place; None for none, and for one that is no collection. ValueError for a damaged one."""
    try:
        metadata = pq.read_schema(place).metadata or {}
    except (OSError, pa.ArrowInvalid):
        return None
    return File(place) if b"comparison" in metadata else None


def write(place: Path, columns: Columns, facts: Facts | None = None) -> None:
    """Writes the columns, a row group in memory at a time; the file is complete or as before."""
    kinds = table_of({name: of[:0] for name, of in columns.items()}, facts).schema
    with drafted(place) as draft, pq.ParquetWriter(draft, kinds, **UNPACKED) as writer:
        for part in blocks(len(columns["path"]), GROUP):
            writer.write_table(table_of({name: of[part] for name, of in columns.items()}))


def table_of(columns: Columns, facts: Facts | None = None) -> pa.Table:
    """The columns in memory, as a file has them."""
    values = [pa.array(of, pa.string()) if name in TEXT else lists(np.asarray(of)) for name, of in columns.items()]
    return pa.table(values, list(columns), metadata=facts.encoded() if facts else {})


def require_free(schema: pa.Schema, source: Path) -> None:
    """ValueError where a column has a name of those to be written, and polygrain did not write it: it would be lost."""
    facts = (schema.metadata or {}).keys()
    is_ours = facts >= {b"version", b"comparison"} or b"smoothing" in facts
    for name in ("searched", "plain"):
        if name in schema.names and not (is_ours and pa.types.is_fixed_size_list(schema.field(name).type)):
            raise ValueError(f"{source} has a column {name!r} of its own, which would be replaced: rename it")


def rows_of(dim: int) -> pa.DataType:
    return pa.list_(pa.float32(), dim)


def lists(rows: Float32[np.ndarray, "row dim"]) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(np.ravel(rows), rows.shape[1])


def numbers(column: pa.Array, dim: int) -> Float32[np.ndarray, "row dim"]:
    return column.flatten().to_numpy(zero_copy_only=False).reshape(-1, dim)
