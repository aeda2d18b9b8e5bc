"""Embeddings of images: an array of a few, a Parquet file of any number.

The file has the columns `path` (below a folder) and `embedding` (fixed-size list of float32, of unit length). Its
metadata say which model made it (`model`, a digest), `dim`, the folder (`root`), and the state of its files (`images`).
"""

import fcntl
import json
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from jaxtyping import Float32, UInt8
from PIL import Image

from polygrain.app.listing import Listing
from polygrain.compute import device
from polygrain.compute.ahead import ahead
from polygrain.compute.blocks import blocks
from polygrain.encoder.model import Model
from polygrain.encoder.views import centre_crop
from polygrain.runner.progress import progress
from polygrain.sources.decode import Picture, decode, decode_all
from polygrain.sources.folder import summary
from polygrain.store.reading import reading
from polygrain.store.square import Unreadable, square
from polygrain.store.tables import read_csv, write_csv

log = logging.getLogger(__name__)
BATCH = 64
# Images of a finished part, which a killed call does not repeat; also the rows of a row group.
PART = 1024
# As many as params.yaml may allow (images.max_megapixels).
MOST_PIXELS = 89_000_000


def embed(model: Model, images: Sequence[str | Path | Image.Image], batch: int = BATCH) -> Float32[np.ndarray, "n dim"]:
    """Embeddings of unit length, a row for each image file or opened image, in their order.

    At most `batch` images are decoded at once. ValueError names the file that cannot be read.
    """
    rows = [
        embed_squares(model, np.stack([squared(model, image) for image in images[part]]))
        for part in blocks(len(images), batch)
    ]
    return np.concatenate(rows) if rows else np.empty((0, model.dim), np.float32)


def squared(model: Model, image: str | Path | Image.Image) -> UInt8[np.ndarray, "side side 3"]:
    """An image as the square that the model's pipeline stores."""
    if isinstance(image, Image.Image):
        return square(image, model.config.resize)
    try:
        return decode(Path(image), model.config.resize, MOST_PIXELS).pixels
    except Unreadable as reason:
        raise ValueError(f"{image} is left out: {reason}") from reason


def embed_squares(model: Model, squares: UInt8[np.ndarray, "n side side 3"]) -> Float32[np.ndarray, "n dim"]:
    """Embeddings of images that are squares of the model's `resize` pixels."""
    where = next(model.parameters()).device
    images = device.staged(squares, where).to(where, non_blocking=True)
    with torch.inference_mode():
        return model(centre_crop(images, model.config.size)).float().cpu().numpy()


def schema(dim: int, metadata: dict[str, str | bytes] | None = None) -> pa.Schema:
    columns = [pa.field("path", pa.string()), pa.field("embedding", pa.list_(pa.float32(), dim))]
    return pa.schema(columns, metadata)


def is_current(output: Path, digest: str, listing: Listing) -> bool:
    """Whether a file holds the embeddings of these images, as they are now, by the model of this digest."""
    try:
        metadata = pq.read_schema(output).metadata or {}
    except (OSError, pa.ArrowInvalid):
        return False
    return metadata.get(b"model") == digest.encode() and metadata.get(b"images") == listing.fingerprint().encode()


def rejected_file(output: Path) -> Path:
    """Where the files that were left out are listed, with the reasons."""
    return output.with_suffix(".rejected.csv")


def write(model: Model, digest: str, listing: Listing, output: Path, batch: int = BATCH) -> None:
    """Writes the embeddings of all images of a listing, and what was left out beside them, unless they are there.

    A folder `<output>.partial` keeps what is finished: a call that was killed goes on where it was, to the same bytes.
    ValueError where no image can be read.
    """
    if is_current(output, digest, listing):
        return
    partial = output.with_name(output.name + ".partial")
    with locked(partial):
        begin(partial, {"model": digest, "images": listing.fingerprint(), "batch": batch, "part": PART})
        parts = {partial / f"{part.start:09d}.parquet": part for part in blocks(len(listing.paths), PART)}
        todo = {file: part for file, part in parts.items() if not file.exists()}
        if len(todo) < len(parts):
            log.info("embed: goes on, %d of %d parts are there", len(parts) - len(todo), len(parts))
        batches = [images for part in todo.values() for images in blocks(part, batch)]
        count = sum(part.stop - part.start for part in todo.values())
        results = progress(outcomes(model, listing, batches), "embed", count, "image")
        for file, part in todo.items():
            write_part(file, model.dim, list(islice(results, part.stop - part.start)))
        gather(list(parts), model.dim, digest, listing, output)


@contextmanager
def locked(partial: Path) -> Iterator[None]:
    """The folder of what is finished, for one process at a time; it is removed when the block ends well."""
    partial.mkdir(exist_ok=True)
    descriptor = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
        shutil.rmtree(partial)
    except BlockingIOError as error:
        raise ValueError(f"another process writes {partial}: wait for it, or give another output") from error
    finally:
        os.close(descriptor)


def begin(partial: Path, plan: dict) -> None:
    """Keeps what is there where it was made by the same plan; clears the folder otherwise."""
    file, text = partial / "plan.json", json.dumps(plan)
    if file.exists() and file.read_text(encoding="utf-8") == text:
        return
    for entry in partial.iterdir():
        entry.unlink()
    file.write_text(text, encoding="utf-8")


def outcomes(model: Model, listing: Listing, batches: list[slice]) -> Iterator[tuple[str, np.ndarray | str]]:
    """Each path with its embedding, or with the reason why there is none; threads decode while the model works."""

    def load(rows: slice) -> list[Picture | str]:
        return list(decode_all(listing.root, listing.paths[rows], model.config.resize, MOST_PIXELS))

    for rows, pictures in ahead(batches, load):
        squares = [picture.pixels for picture in pictures if not isinstance(picture, str)]
        vectors = iter(embed_squares(model, np.stack(squares)) if squares else ())
        for path, picture in zip(listing.paths[rows], pictures, strict=True):
            yield path, picture if isinstance(picture, str) else next(vectors)


def write_part(file: Path, dim: int, results: list[tuple[str, np.ndarray | str]]) -> None:
    embedded = [(path, vector) for path, vector in results if not isinstance(vector, str)]
    left = [(path, reason) for path, reason in results if isinstance(reason, str)]
    write_csv(file.with_suffix(".csv"), [("path", "reason"), *left])
    values = np.concatenate([vector for _, vector in embedded]) if embedded else np.empty(0, np.float32)
    columns = [pa.array([path for path, _ in embedded], pa.string()), pa.FixedSizeListArray.from_arrays(values, dim)]
    draft = file.with_suffix(".draft")
    pq.write_table(pa.Table.from_arrays(columns, schema=schema(dim)), draft, compression="none", use_dictionary=False)
    os.replace(draft, file)


def gather(parts: list[Path], dim: int, digest: str, listing: Listing, output: Path) -> None:
    """Puts the parts behind each other, one in memory at a time, and what they left out into one list."""
    left, draft = dict(listing.rejected), parts[0].with_name("whole.draft")
    metadata = {"model": digest, "dim": str(dim), "root": os.fsencode(listing.root), "images": listing.fingerprint()}
    whole, rows = schema(dim, metadata), 0
    with pq.ParquetWriter(draft, whole, compression="none", use_dictionary=False) as writer:
        for part in parts:
            with reading(part, f"delete {part.parent} and embed again"):
                table = pq.read_table(part)
                left |= {row["path"]: row["reason"] for row in read_csv(part.with_suffix(".csv"))}
            rows += len(table)
            if len(table):
                writer.write_table(table.cast(whole))
    if not rows:
        shutil.rmtree(draft.parent)
        raise ValueError(f"none of the {len(listing.paths)} images of {listing.root} can be read; {summary(left)}")
    table = draft.with_name("rejected.draft")
    write_csv(table, [("path", "reason"), *sorted(left.items())])
    os.replace(table, rejected_file(output))
    os.replace(draft, output)


def write_npy(embeddings: Path, output: Path) -> None:
    """The column `embedding` of a file as a NumPy array `image dim`, a row group in memory at a time."""
    file = pq.ParquetFile(embeddings)
    shape = (file.metadata.num_rows, file.schema_arrow.field("embedding").type.list_size)
    draft, row = output.with_name(output.name + ".partial"), 0
    rows = np.lib.format.open_memmap(draft, "w+", np.float32, shape)
    for group in file.iter_batches(PART, columns=["embedding"]):
        rows[row : row + len(group)] = group.column(0).flatten().to_numpy().reshape(-1, shape[1])
        row += len(group)
    rows.flush()
    os.replace(draft, output)
