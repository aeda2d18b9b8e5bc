"""One task's images, decoded once, from a folder, zip or stream, a public data set or an installed package.

Reads   the source
Writes  pixels.zarr         image x y x x x 3, uint8, sorted by class and path: squares, or rectangles of several shapes
        table.parquet       a row per image: path, class, split, whether it is a query and whether it trains, original
                            size and content hash, that of the first file which shows the same
        rejected.csv        a row per file that was left out, with the reason
        shares/1percent.txt and so on, if `listed_shares` asks for them: the paths in a published list of few images

Two protocols say what trains, always without labels. `classes`: the first half of the classes (rounded up), sorted by
name (public data sets: as published); the other half is tested. `collection`: all images but the queries, which are
drawn by their content. Every table holds both splits. An unseen task never trains. The images of a flat folder have
no class (label -1); they all train, and none is a query.
`splits` is ImageNet's layout: train/ and val/ are the split. A public data set keeps its duplicates; its counts must be
the published ones. A stream (tars, Parquet, an object store) is neither held in memory nor unpacked: rows are in its
order, training rows among the others, and a killed run continues after the last full shard.
"""

import hashlib
import os
import shutil
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, StringConstraints

from polygrain.compute.counted import counted
from polygrain.config import schema
from polygrain.config.lists import Lists, Task
from polygrain.runner import command, outputs
from polygrain.runner.progress import progress
from polygrain.sources import archive, folder
from polygrain.sources.kind import Ask, Assignment, Candidates, assign
from polygrain.sources.kinds import kind_of
from polygrain.sources.streams.ingest import Ingestion
from polygrain.sources.streams.stream import Stream, require_labels
from polygrain.store import arrays, work
from polygrain.store.coded import Coding
from polygrain.store.image_table import TABLE, read_table, write_share
from polygrain.store.rectangle import Shape, largest
from polygrain.store.tables import write_csv

BLOCK = 256


class PerClass(schema.Section):
    """The number of images that the embedded tasks draw for each class."""

    digits: int = Field(ge=2, le=1_000_000, description="images of each digit, at most (there are 174 to 183)")
    glyphs: int = Field(
        ge=2, le=1_000_000, description="images of each character; every font is used once before one is used again"
    )
    patches: int = Field(ge=2, le=1_000_000, description="crops of each place")


class Params(schema.Section):
    protocol: Literal["classes", "collection"] = Field(
        description="images that train: classes: those of the first half of the classes; collection: all but queries"
    )
    queries: float = Field(gt=0, lt=1, description="share of a labelled task's images that are drawn as queries")
    draw: int = Field(ge=0, lt=2**31, description="number of the draw; another one draws other queries")
    side: int = Field(ge=16, le=1024, description="side of the stored images, the shorter one of rectangles, pixels")
    shape: Shape = Field(
        description="whole: the whole image as a rectangle, up to 3 to 1, or its centre square if it is nearly "
        "square; crop: the centre square always; squash: the whole image, out of proportion, for the branches of "
        "papers: `polygrain embed` and `search` crop"
    )
    per_class: PerClass
    places: int = Field(ge=2, le=70, description="places in each photograph of the task `patches`")
    stored: Annotated[str, StringConstraints(pattern=r"^(raw|(webp|jpeg)-([1-9][0-9]?|100))$")] = Field(
        description="raw: pixels; jpeg-90, webp-75 and so on: compressed at a quality of 1 to 100, with some loss, to "
        "about a tenth of the bytes"
    )
    listed_shares: list[schema.Share] = Field(
        max_length=100,
        description="shares of the training images that lists of `splits` name; 0.01: 1percent.txt beside train/",
    )
    published_counts: bool = Field(description="stop where a public data set does not have its published counts")

    @property
    def coding(self) -> Coding | None:
        """The coding of the pictures; None for raw squares."""
        kind, _, quality = self.stored.partition("-")
        side = self.side if self.shape == "whole" else None
        return Coding(kind, int(quality or 100), side) if quality or side else None  # type: ignore[arg-type]


def write_pixels(writer: arrays.Writer, candidates: Candidates) -> tuple[dict[str, tuple], dict[str, str]]:
    """Stores (the first copy of) each picture; returns {path: last columns of its row} in order, and {path: reason}."""
    stored: dict[str, tuple] = {}
    rejected: dict[str, str] = {}
    first: dict[str, tuple[str, str]] = {}
    block = []
    pairs = zip(candidates.rows, candidates.outcomes, strict=True)
    for path, outcome in progress(pairs, "read", len(candidates.rows), "image"):
        if isinstance(outcome, str):
            rejected[path] = outcome
        elif not candidates.is_published and (reason := outcome.copied(first)):
            rejected[path] = reason
        else:
            # Of pictures that are kept twice both are queries, or none is.
            _, sha256 = first.setdefault(outcome.shown, (path, outcome.sha256))
            block.append(outcome.pixels)
            stored[path] = (*outcome[1:-1], sha256)
        if len(block) == BLOCK:
            writer.append(block)
            block = []
    if block:
        writer.append(block)
    return stored, rejected


def write_stream(
    stream: Stream, partial: Path, raw: Path, task: str, params: Params, spec: Task
) -> list[tuple[str, str]]:
    """Writes pictures and table of a stream; returns (path, reason) of images left out.

    Finished shards stay in `.work` until the result is kept.
    """
    values = [spec.source, spec.files, params, stream.place.root, stream.place.digest]
    ingestion = Ingestion(work.folder("images", task, values, []), params.side, params.shape, params.coding)
    before = sum(len(part.rows) + len(part.rejected) for part in ingestion.parts())
    count = stream.total()
    for _ in progress(ingestion.run(stream), "read", count and count - before, "image"):
        pass
    classes, rejected = Counter[str](), []
    for part in ingestion.parts():
        classes.update(class_name for _, class_name, *_ in part.rows)
        rejected += [(path, reason) for path, reason in part.rejected]
    require_labels(classes, Counter(reason for _, reason in rejected), str(raw))
    rejected += stream.others.items()
    assigned = classes_of(raw, classes, spec.unseen, dict(rejected))
    with pq.ParquetWriter(partial / "table.parquet", TABLE) as writer:
        for part in ingestion.parts():
            rows = [(path, task, *assigned[name], *measures) for path, name, *measures, _ in part.rows]
            writer.write_table(table_of(rows, spec.unseen, params))
    # They stay where the next start looks for them.
    shutil.copytree(ingestion.pixels, partial / "pixels.zarr", copy_function=link)
    return rejected


def link(file: str, target: str) -> None:
    """A second name for the file, or a copy where the file system has none."""
    try:
        os.link(file, target)
    except OSError:
        shutil.copy2(file, target)


def classes_of(raw: Path, classes: Counter[str], unseen: bool, rejected: dict[str, str]) -> dict[str, Assignment]:
    """The assignment of each class; numbers are sorted as such. ValueError for no image, or one class alone."""
    names = sorted(classes, key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0, name))
    if not names:
        raise ValueError(f"{raw}: no image can be used; {folder.summary(rejected)}")
    if len(names) == 1 and names != [""]:
        raise ValueError(
            f"{raw}: all images are of the class {names[0]!r}; a labelled task needs two classes or more, an "
            "unlabelled one no label at all"
        )
    return assign(names, unseen)


def is_query(sha256: str, params: Params) -> bool:
    """Whether an image is drawn as a query: by its content, so that copies go together and new images move no other."""
    drawn = hashlib.sha256(f"{params.draw} {sha256}".encode()).digest()
    return int.from_bytes(drawn[:8]) < params.queries * 2**64


def table_of(rows: list[tuple], unseen: bool, params: Params) -> pa.Table:
    """The table from rows without the columns `is_query` and `trains`, which follow from the others."""
    names = [name for name in TABLE.names if name not in ("is_query", "trains")]
    records = [dict(zip(names, row, strict=True)) for row in rows]
    for record in records:
        record["is_query"] = record["label"] >= 0 and is_query(record["sha256"], params)
        by_class = params.protocol == "classes" or record["label"] < 0
        record["trains"] = record["split"] == "train" if by_class else not (record["is_query"] or unseen)
    return pa.Table.from_pylist(records, TABLE)


def write_candidates(
    candidates: Candidates, partial: Path, raw: Path, task: str, params: Params, spec: Task
) -> list[tuple[str, str]]:
    """As `write_stream`, for images of no stream."""
    row = largest(params.side, params.shape)
    with arrays.create(partial / "pixels.zarr", row, "uint8", "image y x channel", params.coding) as writer:
        stored, unreadable = write_pixels(writer, candidates)
    if candidates.is_published and unreadable and params.published_counts:
        raise ValueError(f"{raw} differs from the published {spec.source}: {folder.summary(unreadable)}")
    rejected = candidates.rejected | unreadable
    if not stored:
        raise ValueError(f"{raw}: no image can be used; {folder.summary(rejected)}")
    rows = [(path, task, *candidates.rows[path], *measures) for path, measures in stored.items()]
    pq.write_table(table_of(rows, spec.unseen, params), partial / "table.parquet")
    for share, paths in candidates.shares.items():
        write_share(partial, share, (path for path in paths if path in stored))
    return [*rejected.items()]


def main(raw: Path, output: Path, *, task: str, params: Params, lists: Lists) -> str:
    """Ingests one task; `raw` is its folder, file or listing, for an embedded source versions.yaml."""
    spec = lists.tasks[task]
    kind = kind_of(spec.source)
    with outputs.folder(output) as partial, ExitStack() as stack:
        ask = Ask(
            params,
            spec.unseen,
            spec.files,
            unpacked=lambda path: stack.enter_context(archive.opened(path, partial / "unpacked")),
        )
        before, images = entries(raw), kind.open(raw, ask)
        if isinstance(images, Stream):
            rejected = write_stream(images, partial, raw, task, params, spec)
            again = kind.open(raw, ask)
            if isinstance(again, Stream) and again.place.digest != images.place.digest:
                raise ValueError(f"{raw} changed while it was read: start the run again, it goes on")
        else:
            rejected = write_candidates(images, partial, raw, task, params, spec)
            if entries(raw) != before:  # a folder that was away for a moment, while the files were listed
                raise ValueError(f"{raw} changed while it was read: start the run again")
        write_csv(partial / "rejected.csv", [("path", "reason"), *sorted(rejected)])
    return summary(output, len(rejected))


def entries(raw: Path) -> list[list[str]]:
    """The names directly in a folder, and in train/ and val/ of one of splits."""
    return [sorted(os.listdir(place)) for place in (raw, raw / "train", raw / "val") if place.is_dir()]


def summary(output: Path, rejected: int) -> str:
    """The logged line: the table's counts."""
    table = read_table(output)
    train, queries = (sum(table[column].to_pylist()) for column in ("trains", "is_query"))
    classes = len(set(table["class_name"].to_pylist()) - {""})
    asked = counted(queries, "query", "queries")
    of = f"of {counted(classes, 'class', 'classes')}" if classes else "without classes"
    return f"{counted(len(table), 'image')} {of}: {train} train, {asked}; {rejected} left out"


if __name__ == "__main__":
    command.run(main, Params)
