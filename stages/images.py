"""One task's images, decoded once: reads a folder, zip or stream of images, a public data set or an installed package,
and writes

- pixels.zarr `image size size 3` uint8, training rows first;
- table.parquet, a row per image: where it is from, its class and split, its original size and content hash;
- rejected.csv, a row per file that was left out, with the reason;
- shares/1percent.txt and so on, if `listed_shares` asks for them: the paths of the images that such a list names.

Classes are sorted by name (public data sets: as published); the first half (rounded up) trains, without its labels, the
other half is tested. All of an unseen task is tested. The images of a flat folder have no class (label -1), all train.
`splits` is ImageNet's layout, train/ and val/, taken as split. A public data set is taken as it is: duplicates stay in,
and its counts must be the published ones. A stream (tars, parquet, an object store) is neither held in memory nor
unpacked: its rows are in the order of the stream, training rows among the others, and a run that was killed goes on
behind the last full shard.
"""

import shutil
from contextlib import closing, nullcontext
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.runner import command, outputs
from polygrain.runner.progress import progress
from polygrain.sources import archive, folder, installed, names, shares
from polygrain.sources.candidates import Assignment, Candidates, assign, by_class, in_splits, published
from polygrain.sources.decode import decode_all
from polygrain.sources.streams import place, stream
from polygrain.sources.streams.ingest import ingest, resumed
from polygrain.sources.streams.ledger import Ledger
from polygrain.store import arrays, work
from polygrain.store.coded import Coding
from polygrain.store.collection import TABLE, write_share
from polygrain.store.square import Shape
from polygrain.store.tables import write_csv

BLOCK = 256
TABLE_ROWS = 2**16


class PerClass(schema.Section):
    """How many images the embedded tasks draw for each class."""

    digits: int = Field(ge=2, le=1_000_000, description="images of each digit, at most (there are 174 to 183)")
    glyphs: int = Field(
        ge=2, le=1_000_000, description="images of each character; every font is used once before one is used again"
    )
    patches: int = Field(ge=2, le=1_000_000, description="crops of each place")


class Params(schema.Section):
    side: int = Field(ge=16, le=1024, description="side of the stored square images, pixels")
    shape: Shape = Field(description="crop: the centre square; squash: the whole image, out of proportion")
    max_megapixels: int = Field(ge=1, le=89, description="larger image files are refused, unread")
    per_class: PerClass
    places: int = Field(ge=2, le=70, description="places in each photograph of the task `patches`")
    stored: Literal["raw", "webp", "jpeg"] = Field(
        description="raw squares; or coded, with some loss, at a tenth of the bytes or so, and decoded as they are read"
    )
    quality: int = Field(ge=1, le=100, description="of coded squares, as Pillow has it; raw ones have none")
    listed_shares: list[schema.Share] = Field(
        max_length=100,
        description="of `splits`: training images that a list beside train/ and val/ names, 1percent.txt for 0.01",
    )
    published_counts: bool = Field(description="stop where a public data set does not have its published counts")

    @property
    def coding(self) -> Coding | None:
        """Of the squares; None where they are stored as they are."""
        return None if self.stored == "raw" else Coding(self.stored, self.quality)


def draw(source: str, params: Params) -> installed.Pictures:
    """The images of a source that is installed."""
    if source == "digits":
        return installed.digits(params.side, params.per_class.digits)
    if source == "glyphs":
        return installed.glyphs(params.side, params.per_class.glyphs)
    if source == "patches":
        return installed.patches(params.side, params.per_class.patches, params.places)
    raise ValueError(f"source is {source!r}; known: {', '.join(names.KNOWN)}")


def find(raw: Path, source: str, unseen: bool, params: Params) -> Candidates:
    """The candidates of any source."""
    limit = params.max_megapixels * 10**6
    if source == "folder":
        listing = folder.find(raw)
        return by_class(
            listing.images,
            unseen,
            lambda paths: decode_all(raw, paths, params.side, limit, params.shape),
            listing.rejected,
        )
    if source == "splits":
        return in_splits(raw, params.side, limit, params.shape)
    if source in names.PUBLIC:
        return published(raw, source, unseen, params.side, limit, params.published_counts, params.shape)
    drawn = draw(source, params)
    classes = {path: class_name for class_name, path in drawn}
    return by_class(classes, unseen, lambda paths: (drawn[classes[path], path] for path in paths), {})


def write_pixels(
    writer: arrays.Writer, candidates: Candidates, task: str, keep_duplicates: bool
) -> tuple[dict[str, tuple], dict[str, str]]:
    """Stores the (first copy of) each picture; returns {path: its row's last columns} as stored, {path: reason}."""
    kept: dict[str, tuple] = {}
    rejected: dict[str, str] = {}
    first: dict[str, str] = {}
    block = []
    pairs = zip(candidates.rows, candidates.outcomes, strict=True)
    for path, outcome in progress(pairs, f"images@{task}", len(candidates.rows), "image"):
        if isinstance(outcome, str):
            rejected[path] = outcome
        elif outcome.sha256 in first and not keep_duplicates:
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


def read_shares(raw: Path, candidates: Candidates, wanted: list[float]) -> dict[float, list[str]]:
    """{share: paths that its list names}; ValueError for a missing list, and for one of other images."""
    training = [path for path, row in candidates.rows.items() if row.split == "train"]
    return {share: shares.read(raw, share, training) for share in wanted}


def require_images(raw: Path, kept: dict[str, tuple], candidates: Candidates, rejected: dict[str, str]) -> None:
    """Raises ValueError if a split that had candidates has no image left, with counts and the first reasons."""
    splits = {path: row.split for path, row in candidates.rows.items()}
    for split in sorted(set(splits.values()), reverse=True):
        if not any(splits[path] == split for path in kept):
            tried = sum(met == split for met in splits.values())
            raise ValueError(
                f"{raw}: none of the {tried} {split} images can be used ({len(kept)} others can); "
                f"{folder.summary(rejected)}"
            )


def streamed(raw: Path, output: Path, task: str, source: str, params: Params, lists: Lists) -> str:
    """`main` for a stream: what is finished of it stays in `.work` until all is."""
    spec = lists.tasks[task]
    found = stream.find(raw, source, spec.files)
    count = found.count()
    kept = work.folder("images", task, source, spec.files, params, found.place.root, found.place.digest)
    with closing(Ledger(kept / "ledger.sqlite")) as ledger:
        writer = resumed(kept / "pixels.zarr", ledger, params.side, params.coding)
        steps = ingest(found, writer, ledger, params.max_megapixels * 10**6, params.shape)
        left = max(0, count - writer.rows - ledger.rejected())
        for _ in progress(steps, f"images@{task}", left, "image"):
            pass
        writer.close()
        if source == "remote":
            place.require_unchanged(raw, place.remote(found.place.root))
        assigned = classes_of(raw, ledger, spec.unseen)
        with outputs.folder(output) as partial:
            write_table(partial / "table.parquet", ledger, task, assigned)
            write_csv(partial / "rejected.csv", [("path", "reason"), *ledger.rejections()])
            # Last, so that a kill before it leaves them where the next start looks for them.
            shutil.move(kept / "pixels.zarr", partial / "pixels.zarr")
        train = sum(number for name, number in ledger.classes().items() if assigned[name].split == "train")
        left_out = ledger.rejected()
    shutil.rmtree(kept)
    classes = len(assigned.keys() - {""})
    return f"{train} train and {writer.rows - train} test images of {classes} classes, {left_out} left out"


def classes_of(raw: Path, ledger: Ledger, unseen: bool) -> dict[str, Assignment]:
    """The row of each class's images; numbers are sorted as such. ValueError for no image, or one class alone."""
    names = sorted(
        ledger.classes(), key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0, name)
    )
    if not names:
        raise ValueError(
            f"{raw}: no image can be used; {folder.summary(dict(ledger.rejections(3)), count=ledger.rejected())}"
        )
    if len(names) == 1 and names != [""]:
        raise ValueError(
            f"{raw}: all images are of the class {names[0]!r}; a labelled task needs two classes or more, an "
            "unlabelled one no label at all"
        )
    return assign(names, unseen)


def write_table(file: Path, ledger: Ledger, task: str, assigned: dict[str, Assignment]) -> None:
    """The table of the ledger's images, some rows at a time."""
    rows = ledger.rows()
    with pq.ParquetWriter(file, TABLE) as writer:
        while part := [(path, task, *assigned[name], *measures) for path, name, *measures in islice(rows, TABLE_ROWS)]:
            writer.write_table(table_of(part))


def table_of(rows: list[tuple]) -> pa.Table:
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), TABLE, strict=True)]
    return pa.Table.from_arrays(columns, schema=TABLE)


def main(raw: Path, output: Path, *, task: str, source: str, params: Params, lists: Lists) -> str:
    """Ingests one task; `raw` is its folder, file or listing, for an embedded source its package's lock file."""
    if source in names.STREAMS:
        return streamed(raw, output, task, source, params, lists)
    is_public = source in names.PUBLIC
    with (
        archive.opened(raw) if source in ("folder", "splits") else nullcontext(raw) as place,
        outputs.folder(output) as partial,
    ):
        candidates = find(place, source, lists.tasks[task].unseen, params)
        listed = read_shares(place, candidates, params.listed_shares if source == "splits" else [])
        with arrays.create(partial / "pixels.zarr", (params.side, params.side, 3), "uint8", params.coding) as writer:
            kept, unreadable = write_pixels(writer, candidates, task, keep_duplicates=is_public)
        if is_public and unreadable and params.published_counts:
            raise ValueError(f"{raw} differs from what {source} publishes: {folder.summary(unreadable)}")
        rejected = candidates.rejected | unreadable
        require_images(raw, kept, candidates, rejected)
        rows = [(path, task, *candidates.rows[path], *measures) for path, measures in kept.items()]
        pq.write_table(table_of(rows), partial / "table.parquet")
        write_csv(partial / "rejected.csv", [("path", "reason"), *sorted(rejected.items())])
        for share, paths in listed.items():
            write_share(partial, share, (path for path in paths if path in kept))
    train = sum(candidates.rows[path].split == "train" for path in kept)
    found = len({candidates.rows[path].class_name for path in kept} - {""})
    return f"{train} train and {len(kept) - train} test images of {found} classes, {len(rejected)} left out"


if __name__ == "__main__":
    command.run(main, Params)
