"""Brings the file of a collection up to date: embeds the images that are new, and compares all as they are to be."""

import fcntl
import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial as bound
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from jaxtyping import Float32

from polygrain.collection import file as files
from polygrain.collection.asked import NOTHING, Asked, has_grown
from polygrain.collection.embedding import BATCH, embed_pictures
from polygrain.collection.file import Facts, File
from polygrain.collection.listing import fingerprint
from polygrain.collection.maker import Maker
from polygrain.collection.stored import Images
from polygrain.compute.ahead import ahead
from polygrain.compute.blocks import blocks
from polygrain.compute.counted import counted
from polygrain.runner.progress import progress
from polygrain.sources.decode import Picture
from polygrain.sources.folder import summary
from polygrain.store.drafts import put, require_writable
from polygrain.store.reading import reading
from polygrain.store.tables import read_csv, write_csv

log = logging.getLogger(__name__)
# Images of a finished part, which a killed call does not repeat.
PART = 1024
# A row that moves by less stays, so that a database gets moved rows only. Scores are shown with three digits.
STILL = 1e-3


def rejected_file(output: Path) -> Path:
    """The file that lists the images left out, with the reasons."""
    return output.with_suffix(".rejected.csv")


def is_smoothed(facts: Facts, count: int) -> bool:
    """Whether `count` rows are smoothed: among too few, each would be linked to all others."""
    smoothing = facts.comparison.smoothing
    return not facts.smooth and bool(smoothing.strength) and count > smoothing.neighbours


def update(maker: Maker, images: Images, output: Path, asked: Asked = NOTHING, batch: int = BATCH) -> None:
    """Writes the rows of all images, and beside them what was left out, unless they are there.

    Rows of an earlier output are taken over where the image file has the same bytes. A folder `<output>.partial`
    keeps what is finished: a call that was killed goes on where it was, to the same bytes. ValueError where no image
    can be read.
    """
    maker.comparisons.of(asked.task)  # an unknown task is told before the work
    if is_current(files.earlier(output), maker, images, asked):
        return
    require_writable(output)
    dim, home = maker.network.dim, maker.home and maker.home.resolve()
    partial = output.with_name(output.name + ".partial")
    states = dict(zip(images.paths, images.states(), strict=True))
    with locked(partial):
        before = files.earlier(output)  # another process may have ended just now
        facts = None if before is None else before.facts
        is_here = facts is not None and facts.root == images.root
        old = taken_over(before, maker, images, states)
        embed_new(maker, images, partial, old, batch)
        hashes, vectors, left = gather(partial, before if old else None, old, images, dim)
        is_same = bool(old) or (is_here and facts is not None and facts.model == maker.digest)
        settled = asked.completed(maker, images.root, facts, is_here or is_same)
        comparison, count = settled.compare(maker, vectors, facts if is_same else None)
        facts = Facts(
            model=maker.digest,
            dim=dim,
            comparison=comparison,
            root=images.root,
            images=fingerprint(states),
            folder=home,
            source=images.source,
            task=settled.task or "",
            alike=settled.alike,
            count=count,
            smooth="" if asked.smooth else "no",
        )
        plain = comparison.plain(vectors)
        rows = {"searched": plain}
        if is_smoothed(facts, len(vectors)):
            shown = bound(progress, description="smooth", unit="part")
            rows = {"searched": comparison.rows(vectors, maker.network.in_front, shown), "plain": plain}
        if before and old and comparison == before.facts.comparison:
            stay(rows, list(hashes), before)
        about = {"state": [states[path] for path in hashes], "sha256": list(hashes.values())}
        files.write(partial / "whole.parquet", {"path": list(hashes), **rows, **about}, facts)
        write_csv(partial / "rejected.csv", [("path", "reason"), *sorted(left.items())])
        # The file last: while it is as before, the next call does all of this again.
        put(partial / "rejected.csv", rejected_file(output))
        put(partial / "whole.parquet", output)


def is_current(before: File | None, maker: Maker, images: Images, asked: Asked) -> bool:
    """Whether a file holds these images as they are now, by this model, compared as asked."""
    if before is None:
        return False
    facts, home = before.facts, maker.home and maker.home.resolve()
    asked = asked.completed(maker, images.root, facts, facts.root == images.root)
    same = (facts.model, facts.root, facts.images) == (maker.digest, images.root, images.fingerprint())
    remembered = facts.source == images.source and (home is None or facts.folder == home)
    is_enough = asked.as_task(maker) is not None or not has_grown(facts.count, before.count)
    is_wanted = before.is_smoothed == (asked.smooth and is_smoothed(replace(facts, smooth=""), before.count))
    return same and remembered and is_enough and is_wanted and asked.is_met(maker, facts)


def stay(rows: dict[str, np.ndarray], paths: list[str], before: File) -> None:
    """Puts back earlier rows that hardly moved: a database that holds them keeps them."""
    there = {path: row for row, path in enumerate(before.paths())}
    here = np.array([row for row, path in enumerate(paths) if path in there], np.int64)
    places = np.array([there[paths[row]] for row in here], np.int64)
    for name, of in rows.items():
        earlier = before.rows(name)
        for part in blocks(len(here), files.GROUP):
            now, was = of[here[part]], earlier[places[part]]
            of[here[part]] = np.where(np.linalg.norm(now - was, axis=1, keepdims=True) > STILL, now, was)


def taken_over(before: File | None, maker: Maker, images: Images, states: dict[str, str]) -> set[str]:
    """The images whose rows a file has already, by this model: in the state they were in, or of the same bytes."""
    if before is None or before.facts.model != maker.digest:
        return set()
    stored = list(zip(before.paths(), before.text("state"), before.text("sha256"), strict=True))
    rows = [row for row in stored if row[0] in states]
    if gone := len(stored) - len(rows):
        log.warning("embed: drops %s without a file", counted(gone, "image"))
    # In another folder a file may be another one of the same state.
    is_here = before.facts.root == images.root
    same = {path for path, state, _ in rows if is_here and states[path] == state}
    touched = progress([row for row in rows if row[0] not in same], "read what was touched", unit="image")
    return same | {path for path, _, sha256 in touched if sha256 and images.sha256(path) == sha256}


def embed_new(maker: Maker, images: Images, partial: Path, old: set[str], batch: int) -> None:
    """Embeds the images that an earlier file has not, in parts that a killed call leaves behind."""
    new = images._replace(paths=[path for path in images.paths if path not in old])
    begin(partial, {"model": maker.digest, "images": new.fingerprint(), "batch": batch, "part": PART})
    parts = {partial / f"{part.start:09d}.parquet": part for part in blocks(len(new.paths), PART)}
    todo = {file: part for file, part in parts.items() if not file.exists()}
    if old:
        log.info("embed: %s of %s images are embedded already", f"{len(old):,}", f"{len(images.paths):,}")
    if len(todo) < len(parts):
        log.info("embed: continues, %d of %d parts are done", len(parts) - len(todo), len(parts))
    batches = [rows for part in todo.values() for rows in blocks(part, batch)]
    count = sum(part.stop - part.start for part in todo.values())
    results = progress(outcomes(maker, new, batches), "embed", count, "image")
    for file, part in todo.items():
        write_part(file, maker.network.dim, list(islice(results, part.stop - part.start)))


@contextmanager
def locked(partial: Path) -> Iterator[None]:
    """The folder of finished parts, for one process at a time; it is removed when the block ends well."""
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


def begin(partial: Path, plan: dict[str, object]) -> None:
    """Keeps parts that were made by the same plan; clears the folder otherwise."""
    file, text = partial / "plan.json", json.dumps(plan)
    if file.exists() and file.read_text(encoding="utf-8") == text:
        return
    for entry in partial.iterdir():
        entry.unlink()
    file.write_text(text, encoding="utf-8")


def outcomes(maker: Maker, images: Images, batches: list[slice]) -> Iterator[tuple[str, np.ndarray | str, str]]:
    """Each path with its embedding and the SHA-256 of its file, or with the reason why there is none, and "".

    Threads decode while the model works.
    """
    config = maker.network.config

    def load(rows: slice) -> list[Picture | str]:
        return images.pictures(rows, config.resize, config.shape)

    for rows, pictures in ahead(batches, load):
        vectors = iter(embed_pictures(maker.network, [one.pixels for one in pictures if not isinstance(one, str)]))
        for path, picture in zip(images.paths[rows], pictures, strict=True):
            yield (path, picture, "") if isinstance(picture, str) else (path, next(vectors), picture.sha256)


def write_part(file: Path, dim: int, results: list[tuple[str, np.ndarray | str, str]]) -> None:
    embedded = [result for result in results if not isinstance(result[1], str)]
    left = [(path, reason) for path, reason, _ in results if isinstance(reason, str)]
    write_csv(file.with_suffix(".csv"), [("path", "reason"), *left])
    rows = np.array([vector for _, vector, _ in embedded], np.float32).reshape(-1, dim)
    paths, hashes = [path for path, _, _ in embedded], [sha256 for *_, sha256 in embedded]
    files.write(file, {"path": paths, "searched": rows, "sha256": hashes})


def gather(
    partial: Path, before: File | None, old: set[str], images: Images, dim: int
) -> tuple[dict[str, str], Float32[np.ndarray, "row dim"], dict[str, str]]:
    """Paths, with their files' SHA-256, and rows of all parts, and of `old` ones from the earlier file, as they are
    listed, and what is left out. Rows are as the model gave them.

    The rows are in a mapped file, not in memory. ValueError where there are none.
    """
    left, hashes, parts = dict(images.rejected), {}, sorted(partial.glob("[0-9]*.parquet"))
    if before is not None:
        hashes = {
            path: sha256 for path, sha256 in zip(before.paths(), before.text("sha256"), strict=True) if path in old
        }
    for part in parts:
        with reading(part, f"delete {partial}, and call it again"):
            left |= {row["path"]: row["reason"] for row in read_csv(part.with_suffix(".csv"))}
            table = pq.read_table(part, columns=["path", "sha256"])
            hashes |= dict(zip(*table.to_pydict().values(), strict=True))
    paths = [path for path in images.paths if path in hashes]
    if not paths:
        shutil.rmtree(partial)
        raise ValueError(f"none of the {len(images.paths)} images of {images.root} can be read; {summary(left)}")
    place = {path: row for row, path in enumerate(paths)}
    rows = np.lib.format.open_memmap(partial / "rows.npy", "w+", np.float32, (len(paths), dim))
    with (partial / "rows.npy").open("r+b") as stream:
        # Else a full disk is a signal, which ends the process, at the first write to a hole of a mapped file.
        os.posix_fallocate(stream.fileno(), 0, os.fstat(stream.fileno()).st_size)
    if before is not None:
        with reading(before.place, f"delete {before.place}, and call it again"):
            for group in before.groups("path", "plain"):
                # Rows of images that changed or are gone stay behind.
                named = group.column("path").to_pylist()
                taken = [row for row, path in enumerate(named) if path in old]
                values = files.numbers(group.column(before.names["plain"]), dim)[taken]
                rows[[place[named[row]] for row in taken]] = before.facts.comparison.uncentred(values)
    for part in parts:
        with reading(part, f"delete {partial}, and call it again"):
            for group in pq.ParquetFile(part).iter_batches(files.GROUP, columns=["path", "searched"]):
                rows[[place[path] for path in group.column(0).to_pylist()]] = files.numbers(group.column(1), dim)
    return {path: hashes[path] for path in paths}, np.asarray(rows), left
