"""Embeddings of images: an array of a few, a file (collection/file.py) of any number."""

import fcntl
import json
import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial as bound
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
import torch
from jaxtyping import Float32, UInt8
from PIL import Image

from polygrain.collection import file as embeddings
from polygrain.collection.listing import fingerprint
from polygrain.collection.postprocessing.comparison import FEWEST, Comparison
from polygrain.collection.postprocessing.comparisons import Comparisons
from polygrain.collection.stored import Images
from polygrain.compute import device
from polygrain.compute.ahead import ahead
from polygrain.compute.blocks import blocks
from polygrain.encoder.extract import in_passes
from polygrain.encoder.model import Model
from polygrain.encoder.views import centre_crop
from polygrain.runner.progress import progress
from polygrain.sources.decode import Picture, decode, decoding, shown
from polygrain.sources.folder import summary
from polygrain.store.drafts import put, require_writable
from polygrain.store.reading import reading
from polygrain.store.rectangle import Unreadable
from polygrain.store.tables import read_csv, write_csv

log = logging.getLogger(__name__)
BATCH = 64
Given = str | os.PathLike | Image.Image
# Images of a finished part, which a killed call does not repeat.
PART = 1024
# Length of the mean of centred rows from which a mean taken anew may pay.
MOVED = 0.1


def embed(
    model: Model, images: Given | Iterable[Given], batch: int = BATCH, skip: bool = False
) -> Float32[np.ndarray, "n dim"] | tuple[Float32[np.ndarray, "n dim"], dict[int, str]]:
    """Embeddings of unit length, a row for each image file or opened image, in their order; of one image one row.

    At most `batch` images are decoded at once. ValueError names an image that cannot be read; with `skip` it has no
    row, and the rows come with {place: reason} of such images, places from 0.
    """
    given = enumerate([images] if isinstance(images, Given) else images)
    rows, left = [np.empty((0, model.dim), np.float32)], {}
    while part := list(islice(given, batch)):
        pictures = []
        for place, image in part:
            try:
                pictures.append(prepared(model, image))
            except Unreadable as reason:
                if not skip:
                    name = getattr(image, "filename", "") or (image if isinstance(image, Given) else f"number {place}")
                    hint = "" if isinstance(images, Given) else "; with skip=True the others are embedded"
                    raise ValueError(f"{name} cannot be embedded: {reason}{hint}") from reason
                left[place] = str(reason)
        rows += [embed_pictures(model, pictures)]
    return (np.concatenate(rows), left) if skip else np.concatenate(rows)


def prepared(model: Model, image: object) -> UInt8[np.ndarray, "y x 3"]:
    """An image as the model's pipeline stores it; Unreadable with the reason why there is none."""
    if isinstance(image, Image.Image):
        with decoding():
            return shown(image, model.config.resize, model.config.shape)
    if not isinstance(image, str | os.PathLike):
        raise Unreadable(f"it is a {type(image).__name__}: give a file, or PIL's Image.fromarray of pixels")
    if os.path.isdir(image):
        raise Unreadable(f"it is a folder: give its images, such as sorted(Path({str(image)!r}).rglob('*.jpg'))")
    if not os.path.exists(image):
        raise Unreadable("there is no such file")
    return decode(Path(image), model.config.resize, model.config.shape).pixels


def embed_pictures(model: Model, pictures: Sequence[UInt8[np.ndarray, "_ _ 3"]]) -> Float32[np.ndarray, "n dim"]:
    """Embeddings of images that are as the model's pipeline stores them."""
    where, rows = next(model.parameters()).device, np.empty((len(pictures), model.dim), np.float32)
    alike: dict[tuple[int, ...], list[int]] = {}
    for place, picture in enumerate(pictures):
        alike.setdefault(picture.shape, []).append(place)
    for places in alike.values():
        images = device.staged(np.stack([pictures[place] for place in places]), where).to(where, non_blocking=True)
        with torch.inference_mode(), device.autocast(where, device.inference(model.config.size)[1]):
            crops = centre_crop(images, model.config.size)
            rows[places] = in_passes(model, crops, model.config.side).float().cpu().numpy()
    return rows


class Wanted(NamedTuple):
    """How the images are to be compared, where that is said."""

    alike: int | None = None
    """about how many images show the same thing; None: as in an earlier file, if that says it"""
    anew: bool = False
    """choose, whatever an earlier file says"""


UNSAID = Wanted()


def is_current(output: Path, digest: str, listing: Images, smooth: bool, wanted: Wanted = UNSAID) -> bool:
    """Whether a file holds these images' embeddings, as they are now, by the model of this digest."""
    facts = embeddings.metadata(output)
    expected = {"model": digest.encode(), "images": listing.fingerprint().encode(), "root": os.fsencode(listing.root)}
    if wanted.anew or not expected.items() <= facts.items() or "comparison" not in facts:
        return False
    before, count = read_comparison(output), pq.read_metadata(output).num_rows
    is_wanted = wanted.alike in (None, before.alike)
    return is_wanted and embeddings.has_smoothed(output) == (smooth and is_smoothed(before, count))


def is_smoothed(comparison: Comparison, count: int) -> bool:
    """Whether so many rows are smoothed: of too few, each would be linked to all others."""
    return bool(comparison.smoothing.strength) and count > comparison.smoothing.neighbours


def read_comparison(file: Path) -> Comparison:
    """How the rows of a file are compared; ValueError where it is damaged or of an earlier version."""
    with reading(file, embeddings.REMEDY):
        return Comparison.from_json(embeddings.metadata(file)["comparison"])


def rejected_file(output: Path) -> Path:
    """Where the files that were left out are listed, with the reasons."""
    return output.with_suffix(".rejected.csv")


def write(
    model: Model,
    digest: str,
    listing: Images,
    output: Path,
    batch: int = BATCH,
    smooth: bool = False,
    wanted: Wanted = UNSAID,
    folder: Path | None = None,
) -> None:
    """Writes the embeddings of all images of a listing, and what was left out beside them, unless they are there.

    Rows of an earlier output are taken over where the image file has the same bytes. How its images are compared stays,
    if nothing else is wanted; of another model's file or of other images only `alike` does. `smooth`: beside the rows
    smoothed ones, where smoothing is chosen. `folder`: the model's, which knows how its tasks are compared, and which a
    search finds in the file. A folder `<output>.partial` keeps what is finished: a call that was killed goes on where
    it was, to the same bytes. ValueError where no image can be read.
    """
    made_by = {"folder": os.fsencode(folder.resolve())} if folder else {}
    if is_current(output, digest, listing, smooth, wanted):
        if made_by.items() - embeddings.metadata(output).items():
            embeddings.annotate(output, made_by)
        return
    require_writable(output)
    partial = output.with_name(output.name + ".partial")
    states = dict(zip(listing.paths, listing.states(), strict=True))
    with locked(partial):
        facts, old = embeddings.metadata(output), earlier(output, digest, listing, states)
        before = read_comparison(output) if "comparison" in facts else None
        if before:
            wanted = wanted._replace(alike=wanted.alike or before.alike)
        if not old and (facts.get("model"), facts.get("root")) != (digest.encode(), os.fsencode(listing.root)):
            before = None
        embed_new(model, digest, listing, partial, old, batch)
        hashes, vectors, left = gather(partial, old, before, output, listing, model.dim)
        known = Comparisons.read(folder) if folder else Comparisons()
        comparison = compared(known, vectors, listing.root.name, before, wanted, model)
        columns = {"path": list(hashes), "embedding": comparison.plain(vectors)}
        columns |= {"state": [states[path] for path in hashes], "sha256": list(hashes.values())}
        if smooth and is_smoothed(comparison, len(vectors)):
            shown = bound(progress, description="smooth", unit="part")
            columns["smoothed"] = comparison.rows(vectors, model.in_front, shown)
        facts = {"model": digest, "dim": str(model.dim), "root": os.fsencode(listing.root)}
        facts |= {"images": fingerprint(states), "comparison": comparison.to_json()} | made_by
        embeddings.write(partial / "whole.parquet", columns, facts)
        write_csv(partial / "rejected.csv", [("path", "reason"), *sorted(left.items())])
        put(partial / "whole.parquet", output)
        put(partial / "rejected.csv", rejected_file(output))


def embed_new(model: Model, digest: str, listing: Images, partial: Path, old: set[str], batch: int) -> None:
    """Embeds the images of a listing that an earlier file has not, in parts that a killed call leaves behind."""
    new = listing._replace(paths=[path for path in listing.paths if path not in old])
    begin(partial, {"model": digest, "images": new.fingerprint(), "batch": batch, "part": PART, "hashed": True})
    parts = {partial / f"{part.start:09d}.parquet": part for part in blocks(len(new.paths), PART)}
    todo = {file: part for file, part in parts.items() if not file.exists()}
    if old:
        log.info("embed: %s of %s images are embedded already", f"{len(old):,}", f"{len(listing.paths):,}")
    if len(todo) < len(parts):
        log.info("embed: goes on, %d of %d parts are there", len(parts) - len(todo), len(parts))
    batches = [images for part in todo.values() for images in blocks(part, batch)]
    count = sum(part.stop - part.start for part in todo.values())
    results = progress(outcomes(model, new, batches), "embed", count, "image")
    for file, part in todo.items():
        write_part(file, model.dim, list(islice(results, part.stop - part.start)))


def compared(
    known: Comparisons,
    vectors: Float32[np.ndarray, "row dim"],
    name: str,
    before: Comparison | None,
    wanted: Wanted,
    model: Model,
) -> Comparison:
    """How images of a folder of this name are compared: as `before`, unless something else is wanted.

    What was compared without a mean gets one as soon as there are enough images.
    """
    is_fit = before is not None and (before.mean or len(vectors) < FEWEST) and wanted.alike == before.alike
    if before is not None and is_fit and not wanted.anew:
        moved = float(np.linalg.norm(before.plain(vectors).mean(0)))
        if name not in known.tasks and before.mean and len(vectors) >= FEWEST and moved > MOVED:
            log.info("the images have moved away from the mean that is kept (%.2f): --choose takes a new one", moved)
        return before
    comparison, why = known.choose(name, vectors, wanted.alike, model.in_front)
    log.info("%s: %s%s", comparison, why, f"; {wanted.alike} images are alike" if wanted.alike else "")
    return comparison


def earlier(output: Path, digest: str, listing: Images, states: dict[str, str]) -> set[str]:
    """The images that an output holds already, by this model: files in the state they were in, or of the same bytes."""
    facts, columns = embeddings.metadata(output), ["path", "state", "sha256"]
    is_its = facts.get("model") == digest.encode() and "comparison" in facts
    if not is_its or not {*columns} <= {*pq.read_schema(output).names}:
        return set()
    # In another folder a file may be another one of the same state.
    is_here = facts.get("root") == os.fsencode(listing.root)
    stored = list(zip(*pq.read_table(output, columns=columns).to_pydict().values(), strict=True))
    rows = [row for row in stored if row[0] in states]
    if gone := len(stored) - len(rows):
        log.warning("embed: drops %s images that are gone", f"{gone:,}")
    same = {path for path, state, _ in rows if is_here and states[path] == state}
    touched = progress([row for row in rows if row[0] not in same], "read what was touched", unit="image")
    return same | {path for path, _, sha256 in touched if listing.sha256(path) == sha256}


def hashes_in(file: Path) -> dict[str, str]:
    """The SHA-256 of each image of a file."""
    table = pq.read_table(file, columns=["path", "sha256"])
    return dict(zip(*table.to_pydict().values(), strict=True))


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
        raise ValueError(f"another process writes {partial}: try again when it has ended") from error
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


def outcomes(model: Model, listing: Images, batches: list[slice]) -> Iterator[tuple[str, np.ndarray | str, str]]:
    """Each path with its embedding and the SHA-256 of its file, or with the reason why there is none, and "".

    Threads decode while the model works.
    """

    def load(rows: slice) -> list[Picture | str]:
        return listing.pictures(rows, model.config.resize, model.config.shape)

    for rows, pictures in ahead(batches, load):
        vectors = iter(embed_pictures(model, [one.pixels for one in pictures if not isinstance(one, str)]))
        for path, picture in zip(listing.paths[rows], pictures, strict=True):
            yield (path, picture, "") if isinstance(picture, str) else (path, next(vectors), picture.sha256)


def write_part(file: Path, dim: int, results: list[tuple[str, np.ndarray | str, str]]) -> None:
    embedded = [result for result in results if not isinstance(result[1], str)]
    left = [(path, reason) for path, reason, _ in results if isinstance(reason, str)]
    write_csv(file.with_suffix(".csv"), [("path", "reason"), *left])
    rows = np.array([vector for _, vector, _ in embedded], np.float32).reshape(-1, dim)
    paths, hashes = [path for path, _, _ in embedded], [sha256 for *_, sha256 in embedded]
    embeddings.write(file, {"path": paths, "embedding": rows, "sha256": hashes})


def gather(
    partial: Path, old: set[str], before: Comparison | None, output: Path, listing: Images, dim: int
) -> tuple[dict[str, str], Float32[np.ndarray, "row dim"], dict[str, str]]:
    """Paths, with their files' SHA-256, and rows of all parts, and of `old` ones from the output, as they are listed;
    and what is left out. Rows are as the model gave them, `before` the comparison of the output.

    The rows are in a mapped file, not in memory. ValueError where there are none.
    """
    parts = sorted(partial.glob("[0-9]*.parquet"))
    left, remedy = dict(listing.rejected), f"delete {partial} and {output}, and call it again"
    hashes: dict[str, str] = {}
    for source in [output, *parts] if old else parts:
        with reading(source, remedy):
            if source != output:
                left |= {row["path"]: row["reason"] for row in read_csv(source.with_suffix(".csv"))}
            hashes |= {path: of for path, of in hashes_in(source).items() if source != output or path in old}
    paths = [path for path in listing.paths if path in hashes]
    if not paths:
        shutil.rmtree(partial)
        raise ValueError(f"none of the {len(listing.paths)} images of {listing.root} can be read; {summary(left)}")
    place = {path: row for row, path in enumerate(paths)}
    rows = np.lib.format.open_memmap(partial / "rows.npy", "w+", np.float32, (len(paths), dim))
    with (partial / "rows.npy").open("r+b") as stream:
        # Else a full disk is a signal, which ends the process, at the first write to a hole of a mapped file.
        os.posix_fallocate(stream.fileno(), 0, os.fstat(stream.fileno()).st_size)
    for source in [output, *parts] if old else parts:
        with reading(source, remedy):
            for group in pq.ParquetFile(source).iter_batches(embeddings.GROUP, columns=["path", "embedding"]):
                # Of the output, rows of images that changed or are gone stay behind.
                named = group.column(0).to_pylist()
                taken = [row for row, path in enumerate(named) if path in (old if source == output else place)]
                values = group.column(1).flatten().to_numpy().reshape(-1, dim)
                values = values[taken] if source != output else before.uncentred(values[taken])
                rows[[place[named[row]] for row in taken]] = values
    return {path: hashes[path] for path in paths}, np.asarray(rows), left
