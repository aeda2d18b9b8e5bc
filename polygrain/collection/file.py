"""The file of embeddings: a Parquet table with a row for each image, that any reader of Parquet can open.

path        below the folder `root`
embedding   fixed-size list of float32, of unit length, less the collection's mean
state       size and times of the image file, where it may change
sha256      of the image file, by which it is known in another folder
smoothed    the row smoothed by its neighbours (collection/postprocessing/diffusion.py), of unit length, if the images are smoothed

The metadata say which model made it (`model`, a digest, and its `folder`), `dim`, the images' folder (`root`), the
state of all image files (`images`), and how the rows are compared (`comparison`, JSON of collection/postprocessing/comparison.py).
Relative folders start at the file's.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float32

from polygrain.compute.blocks import blocks
from polygrain.store.drafts import drafted
from polygrain.store.reading import reading
from polygrain.store.tables import described

# Rows of a row group.
GROUP = 1024
REMEDY = "make it with `polygrain embed DIR -o embeddings.parquet`"
Columns = Mapping[str, Sequence[str] | np.ndarray]


class Embeddings(NamedTuple):
    """One kind of vectors of a file, plain or smoothed, and what its metadata say."""

    root: Path
    model: str
    paths: list[str]
    vectors: Float32[np.ndarray, "row dim"]
    comparison: bytes


def schema(names: Sequence[str], dim: int, metadata: Mapping[str, str | bytes] | None = None) -> pa.Schema:
    """The types of columns of these names; null of unknown ones."""
    rows = pa.list_(pa.float32(), dim)
    kinds = {"path": pa.string(), "embedding": rows, "state": pa.string(), "sha256": pa.string(), "smoothed": rows}
    return pa.schema([pa.field(name, kinds.get(name, pa.null())) for name in names], dict(metadata or {}))


def write(file: Path, columns: Columns, metadata: Mapping[str, str | bytes] | None = None) -> None:
    """Writes the columns, a row group in memory at a time; the file is complete or as before."""
    dim = np.shape(columns["embedding"])[1]
    kinds = schema(list(columns), dim, metadata)
    with drafted(file) as draft, pq.ParquetWriter(draft, kinds, compression="none", use_dictionary=False) as writer:
        for part in blocks(len(columns["path"]), GROUP):
            values = [
                pa.FixedSizeListArray.from_arrays(np.ravel(rows[part]), dim)
                if pa.types.is_fixed_size_list(kind)
                else pa.array(rows[part], kind)
                for rows, kind in zip(columns.values(), kinds.types, strict=True)
            ]
            writer.write_table(pa.Table.from_arrays(values, schema=kinds))


def annotate(file: Path, facts: Mapping[str, str | bytes]) -> None:
    """Adds to the metadata of a file, or changes them; its rows stay."""
    table = pq.ParquetFile(file)
    kinds = table.schema_arrow.with_metadata({**metadata(file), **facts})
    with drafted(file) as draft, pq.ParquetWriter(draft, kinds, compression="none", use_dictionary=False) as writer:
        for group in table.iter_batches(GROUP):
            writer.write_batch(group)


def metadata(file: Path) -> dict[str, bytes]:
    """The metadata of a file; {} where it is missing or none of Parquet."""
    try:
        values = pq.read_schema(file).metadata or {}
    except (OSError, pa.ArrowInvalid):
        return {}
    return {name.decode("utf-8", "replace"): value for name, value in values.items()}


def has_smoothed(file: Path) -> bool:
    """Whether a file holds smoothed rows."""
    return "smoothed" in pq.read_schema(file).names


def read(file: Path, smoothed: bool = False) -> Embeddings:
    """The embeddings in a file, which may be anyone's, or their smoothed rows if asked for and there.

    ValueError where the file is missing, damaged or senseless.
    """
    with reading(file, REMEDY):
        table, facts = pq.ParquetFile(file), metadata(file)
        count, names = table.metadata.num_rows, table.schema_arrow.names
        if missing := {"model", "dim", "root", "images", "comparison"} - set(facts):
            raise ValueError(f"its metadata lack {', '.join(sorted(missing))}, as those of an earlier version do")
        dim, root = int(facts["dim"]), file.parent / os.fsdecode(facts["root"])
        wrong = dim < 1 or not count or names[:2] != ["path", "embedding"]
        if wrong or table.schema_arrow != schema(names, dim):
            raise ValueError(f"it holds {count} rows of {described(table.schema_arrow)}")
        is_smoothed = smoothed and "smoothed" in names
        vectors = np.empty((count, dim), np.float32)
        paths: list[str] = []
        for group in table.iter_batches(GROUP, columns=["path", "smoothed" if is_smoothed else "embedding"]):
            block = group.column(1).flatten().to_numpy(zero_copy_only=False).reshape(-1, dim)
            vectors[len(paths) : len(paths) + len(group)] = block
            paths += group.column("path").to_pylist()
        lengths = np.linalg.norm(vectors, axis=1)
        # Of an image in which a last layer sees nothing, 0 is left.
        if not np.all((np.abs(lengths - 1) < 1e-3) | (lengths == 0)):
            raise ValueError("not all of its embeddings have unit length")
        if wrong := [path for path in paths if not path or path.startswith("/") or ".." in path.split("/")]:
            raise ValueError(f"{wrong[0]!r:.200} is no path below its folder")
    return Embeddings(root, facts["model"].decode("utf-8", "replace"), paths, vectors, facts["comparison"])
