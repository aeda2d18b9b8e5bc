"""Embeddings of images: an array of a few, a file (store/embeddings.py) of any number."""

import fcntl
import json
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial as bound
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
import torch
from jaxtyping import Float32, UInt8
from PIL import Image
from pydantic import TypeAdapter

from polygrain.app.listing import fingerprint
from polygrain.app.squares import Images
from polygrain.compute import device
from polygrain.compute.ahead import ahead
from polygrain.compute.blocks import blocks
from polygrain.encoder.extract import in_passes
from polygrain.encoder.model import Model
from polygrain.encoder.views import centre_crop
from polygrain.retrieval import smoothing
from polygrain.retrieval.smoothing import Smoothing
from polygrain.retrieval.smoothing_choice import GRAINED, SETTINGS, SmoothingSettings, choose
from polygrain.runner.progress import progress
from polygrain.selection.grain import AXES, FEWEST, axes_for
from polygrain.sources.decode import MOST_PIXELS, Picture, decode
from polygrain.sources.folder import summary
from polygrain.store import embeddings
from polygrain.store.reading import reading
from polygrain.store.square import Unreadable, square
from polygrain.store.tables import read_csv, write_csv

log = logging.getLogger(__name__)
BATCH = 64
# Images of a finished part, which a killed call does not repeat.
PART = 1024


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
    with torch.inference_mode(), device.autocast(where, device.inference(model.config.size)[1]):
        crops = centre_crop(images, model.config.size)
        return in_passes(model, crops, model.config.side).float().cpu().numpy()


class Wanted(NamedTuple):
    """How the images are to be compared; what is None is as in an earlier file, or chosen."""

    axes: int | None = None
    """leading numbers of an embedding"""
    alike: int | None = None
    """about how many images show the same thing"""
    anew: bool = False
    """choose, whatever an earlier file says"""

    def facts(self) -> dict[str, bytes]:
        return {name: str(value).encode() for name, value in self._asdict().items() if value and name != "anew"}


UNSAID = Wanted()


def require_ordered(model: Model, folder: Path, axes: int | None) -> None:
    """ValueError where a model's embeddings cannot be compared by so many leading numbers."""
    if axes is not None and not model.is_ordered:
        raise ValueError(
            f"--grain is {axes}, but the numbers of an embedding of {folder} stand in no order, so that the first are "
            "any: leave --grain out"
        )
    if axes is not None and axes > model.dim:
        raise ValueError(f"--grain is {axes}, but an embedding of {folder} has {model.dim} numbers: give 1 to these")


def is_current(output: Path, digest: str, listing: Images, smooth: bool, wanted: Wanted = UNSAID) -> bool:
    """Whether a file holds these images' embeddings, as they are now, by the model of this digest."""
    facts = embeddings.metadata(output)
    expected = {"model": digest.encode(), "images": listing.fingerprint().encode(), "root": os.fsencode(listing.root)}
    is_wanted = (expected | wanted.facts()).items() <= facts.items() and not wanted.anew
    is_wanted = is_wanted and not (wanted.facts() and "setting" in facts)
    return is_wanted and ("smoothing" in facts) == smooth


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

    Rows of an earlier output are taken over where the image file is the same, and so is how they are compared, if
    nothing else is wanted. `smooth`: beside the rows smoothed ones, where smoothing is chosen. `folder`: the model's,
    which a search finds in the file. A folder `<output>.partial` keeps what is finished: a call that was killed goes on
    where it was, to the same bytes. ValueError where no image can be read.
    """
    made_by = {"folder": os.fsencode(folder.resolve())} if folder else {}
    if is_current(output, digest, listing, smooth, wanted):
        if made_by.items() - embeddings.metadata(output).items():
            embeddings.annotate(output, made_by)
        return
    partial, states = (
        output.with_name(output.name + ".partial"),
        dict(zip(listing.paths, listing.states(), strict=True)),
    )
    with locked(partial):
        old = earlier(output, digest, listing, states)
        new = listing._replace(paths=[path for path in listing.paths if path not in old])
        begin(partial, {"model": digest, "images": new.fingerprint(), "batch": batch, "part": PART, "hashed": True})
        parts = {partial / f"{part.start:09d}.parquet": part for part in blocks(len(new.paths), PART)}
        todo = {file: part for file, part in parts.items() if not file.exists()}
        if old:
            log.info("embed: %s of %s images are embedded already", f"{len(old):,}", f"{len(states):,}")
        if len(todo) < len(parts):
            log.info("embed: goes on, %d of %d parts are there", len(parts) - len(todo), len(parts))
        batches = [images for part in todo.values() for images in blocks(part, batch)]
        count = sum(part.stop - part.start for part in todo.values())
        results = progress(outcomes(model, new, batches), "embed", count, "image")
        for file, part in todo.items():
            write_part(file, model.dim, list(islice(results, part.stop - part.start)))
        hashes, vectors, left = gather(partial, list(parts), old, output, listing, model.dim)
        columns = {"path": list(hashes), "embedding": vectors, "state": [states[path] for path in hashes]}
        columns["sha256"] = list(hashes.values())
        facts = {"model": digest, "dim": str(model.dim), "root": os.fsencode(listing.root)}
        facts |= {"images": fingerprint(states)} | made_by
        known = compared(output, digest, wanted)
        alike = wanted.alike or (int(known["alike"]) if "alike" in known else None)
        axes = wanted.axes or embeddings.axes_of(known) or grain_of(model, vectors, alike)
        facts |= {name: str(value) for name, value in (("axes", axes), ("alike", alike)) if value}
        if smooth:
            before = TypeAdapter(Smoothing).validate_json(known["smoothing"]) if "smoothing" in known else None
            is_whitened = bool(model.config.reduced) and not model.config.grains
            settings = GRAINED if model.config.grains else SETTINGS
            more, chosen = smoothed_columns(vectors, is_whitened, alike, before, settings)
            columns, facts = columns | more, facts | {"smoothing": json.dumps(asdict(chosen))}
        # What someone chose on the search page, if the rows are still there.
        if "setting" in known and not wanted.facts():
            kept = known["setting"]
            facts |= {"setting": kept} if "smoothed" in columns or not json.loads(kept)["smoothed"] else {}
        embeddings.write(partial / "whole.parquet", columns, facts)
        write_csv(partial / "rejected.csv", [("path", "reason"), *sorted(left.items())])
        os.replace(partial / "rejected.csv", rejected_file(output))
        os.replace(partial / "whole.parquet", output)


def earlier(output: Path, digest: str, listing: Images, states: dict[str, str]) -> set[str]:
    """The images that an output holds already, by this model, in the state they are in; of another folder, their bytes
    are the same, too.
    """
    facts = embeddings.metadata(output)
    if facts.get("model") != digest.encode() or "state" not in pq.read_schema(output).names:
        return set()
    is_here, hashes = facts.get("root") == os.fsencode(listing.root), hashes_in(output)
    stored = pq.read_table(output, columns=["path", "state"]).to_pydict()
    same = {path for path, state in zip(stored["path"], stored["state"], strict=True) if states.get(path) == state}
    return same if is_here else {path for path in same if listing.sha256(path) == hashes[path]}


def hashes_in(file: Path) -> dict[str, str]:
    """The SHA-256 of each image of a file; "" in one of an earlier version."""
    names = pq.read_schema(file).names
    table = pq.read_table(file, columns=["path", *(name for name in names if name == "sha256")]).to_pydict()
    return dict(zip(table["path"], table.get("sha256", [""] * len(table["path"])), strict=True))


def compared(output: Path, digest: str, wanted: Wanted) -> dict[str, bytes]:
    """What an earlier file says of how its rows are compared, less what is now wanted otherwise or was of too few."""
    facts = embeddings.metadata(output)
    if wanted.anew or facts.get("model") != digest.encode():
        return {}
    rows, outdated = pq.read_metadata(output).num_rows, set()
    if wanted.alike and wanted.facts()["alike"] != facts.get("alike"):
        outdated = {"axes", "smoothing"}
    if rows < SETTINGS.fewest:
        outdated.add("smoothing")
    if rows <= FEWEST and "alike" in facts:
        outdated.add("axes")
    return {name: value for name, value in facts.items() if name not in outdated}


def grain_of(model: Model, vectors: Float32[np.ndarray, "row dim"], alike: int | None) -> int | None:
    """How many leading numbers images are compared by: chosen where it is known how many are alike, else the median of
    the model's tasks; None for a model without grains.
    """
    grains = sorted(model.config.grains.values())
    if not grains:
        return None
    if alike is None or len(vectors) <= FEWEST:
        return grains[len(grains) // 2]
    return axes_for(vectors, sorted({axes for axes in AXES if axes < model.dim} | {model.dim}), alike)


def smoothed_columns(
    vectors: Float32[np.ndarray, "row dim"],
    is_whitened: bool,
    alike: int | None,
    before: Smoothing | None,
    settings: SmoothingSettings = SETTINGS,
) -> tuple[dict[str, np.ndarray], Smoothing]:
    """The columns of the smoothed rows, none where smoothing is not chosen; and what is chosen, or was `before`."""
    if before is not None and before.neighbours < len(vectors):
        taken = before
        log.info("%s, as before", taken)
    else:
        chosen = choose(vectors, settings, is_whitened=is_whitened, alike=alike)
        taken = chosen.smoothing
        log.info("%s: %s", taken, chosen.why)
    if not taken.strength:
        return {}, taken
    shown = bound(progress, description="smooth", unit="part")
    return {"smoothed": smoothing.linked(vectors, taken, shown)[1]}, taken


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
        return listing.pictures(rows, model.config.resize, MOST_PIXELS)

    for rows, pictures in ahead(batches, load):
        squares = [picture.pixels for picture in pictures if not isinstance(picture, str)]
        vectors = iter(embed_squares(model, np.stack(squares)) if squares else ())
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
    partial: Path, parts: list[Path], old: set[str], output: Path, listing: Images, dim: int
) -> tuple[dict[str, str], Float32[np.ndarray, "row dim"], dict[str, str]]:
    """Paths, with their files' SHA-256, and rows of all parts, and of `old` ones from the output, as they are listed;
    and what is left out.

    The rows are in a mapped file, not in memory. ValueError where there are none.
    """
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
                rows[[place[named[row]] for row in taken]] = values[taken]
    return {path: hashes[path] for path in paths}, np.asarray(rows), left
