"""One task's images, decoded once: reads a folder of images or an installed package, writes

- pixels.zarr `image size size 3` uint8, training rows first;
- table.parquet, a row per image: where it is from, its class and split, its original size and content hash;
- rejected.csv, a row per file that was left out, with the reason.

Classes are sorted by name; the first half (rounded up) trains, without its labels, the other half is tested. The images
of a flat folder have no class (label -1) and all train.
"""

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from stages.core import command, embedded, folder, outputs, store
from stages.core.collection import TABLE
from stages.core.decode import Picture, decode_all
from stages.core.progress import progress

BLOCK = 256


class PerClass(command.Section):
    digits: int = Field(ge=2, description="images of each digit, at most (there are 174 to 183)")
    glyphs: int = Field(ge=2, description="images of each character; every font is used once before one is used again")
    patches: int = Field(ge=2, description="crops of each place")


class Params(command.Section):
    size: int = Field(ge=16, le=1024, description="side of the stored square images, pixels")
    max_megapixels: int = Field(ge=1, le=89, description="larger image files are refused, unread")
    per_class: PerClass
    places: int = Field(ge=2, le=70, description="places in each photograph of the task `patches`")


def assign(class_names: list[str]) -> dict[str, tuple[int, str]]:
    """{class name: (label, split)} for sorted names, the first half trains; the class of flat folders is ""."""
    if class_names == [""]:
        return {"": (-1, "train")}
    half = (len(class_names) + 1) // 2
    return {name: (i, "train" if i < half else "test") for i, name in enumerate(class_names)}


def draw(source: str, params: Params) -> embedded.Pictures:
    """The images of an embedded source."""
    if source == "digits":
        return embedded.digits(params.size, params.per_class.digits)
    if source == "glyphs":
        return embedded.glyphs(params.size, params.per_class.glyphs)
    if source == "patches":
        return embedded.patches(params.size, params.per_class.patches, params.places)
    raise ValueError(f"source is {source!r}; known: digits, glyphs, patches, folder")


def write_pixels(
    writer: store.Writer, paths: list[str], outcomes: Iterator[Picture | str], task: str
) -> tuple[dict[str, tuple], dict[str, str]]:
    """Stores the first copy of each picture; returns {path: its row's last columns} in stored order, {path: reason}."""
    kept: dict[str, tuple] = {}
    rejected: dict[str, str] = {}
    first: dict[str, str] = {}
    block = []
    for path, outcome in progress(zip(paths, outcomes, strict=True), f"images@{task}", len(paths), "image"):
        if isinstance(outcome, str):
            rejected[path] = outcome
        elif outcome.sha256 in first:
            rejected[path] = f"duplicate of {first[outcome.sha256]}"
        else:
            first[outcome.sha256] = path
            block.append(outcome.pixels)
            kept[path] = outcome[1:]
        if len(block) == BLOCK:
            writer.append(np.stack(block))
            block = []
    if block:
        writer.append(np.stack(block))
    return kept, rejected


def require_images(raw: Path, kept: list[str], splits: dict[str, str], rejected: dict[str, str]) -> None:
    """Raises ValueError if a split that had candidates has no image left, with counts and the first reasons."""
    for split in sorted(set(splits.values()), reverse=True):
        if not any(splits[path] == split for path in kept):
            tried = sum(met == split for met in splits.values())
            raise ValueError(
                f"{raw}: none of the {tried} {split} images can be used ({len(kept)} others can); "
                f"{folder.summary(rejected)}"
            )


def main(raw: Path, output: Path, *, task: str, source: str, params: Params) -> str:
    """Ingests one task; `raw` is its folder, or for an embedded source the lock file that pins the package it is in."""
    if source == "folder":
        drawn = {}
        classes, rejected = folder.find(raw)
    else:
        drawn = draw(source, params)
        classes, rejected = {path: class_name for class_name, path in drawn}, {}
    assigned = assign(sorted(set(classes.values())))
    splits = {path: assigned[class_name][1] for path, class_name in classes.items()}
    paths = sorted(classes, key=lambda path: (assigned[classes[path]], path))
    stored = (drawn[classes[path], path] for path in paths)
    outcomes = decode_all(raw, paths, params.size, params.max_megapixels * 10**6) if source == "folder" else stored
    with outputs.folder(output) as partial:
        with store.create(partial / "pixels.zarr", (params.size, params.size, 3), "uint8") as writer:
            kept, unreadable = write_pixels(writer, paths, outcomes, task)
        rejected |= unreadable
        require_images(raw, list(kept), splits, rejected)
        rows = [
            (path, task, assigned[classes[path]][0], classes[path], splits[path], *measures)
            for path, measures in kept.items()
        ]
        columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), TABLE, strict=True)]
        pq.write_table(pa.Table.from_arrays(columns, schema=TABLE), partial / "table.parquet")
        with (partial / "rejected.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([("path", "reason"), *sorted(rejected.items())])
    train = sum(splits[path] == "train" for path in kept)
    found = len({classes[path] for path in kept} - {""})
    return f"{train} train and {len(kept) - train} test images of {found} classes, {len(rejected)} left out"


if __name__ == "__main__":
    command.run(main, Params)
