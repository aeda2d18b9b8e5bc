"""Collages of two tasks' images: one target beside three backgrounds, 2 x 2. A pooling must learn what to ignore.

Reads   images/<task> of the targets and of the backgrounds
Writes  pixels.zarr `image size size 3`, training rows first; table.parquet as `images` does; rejected.csv, empty;
        places.csv: row, cell of the target (0 to 3, row by row)

Without backgrounds, each picture is the target alone, `image cell cell 3`: what a perfect pooling would see. A split's
targets stand beside backgrounds of the same split. Each test image occurs once, since a second copy is easy to find.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from polygrain.config import schema
from polygrain.config.items.gsp import Collage
from polygrain.config.lists import Lists
from polygrain.gsp import collage
from polygrain.runner import command, outputs
from polygrain.store import arrays
from polygrain.store.image_table import TABLE, read_table
from polygrain.store.tables import write_csv


class Params(schema.Section):
    cell: int = Field(ge=8, le=256, description="side of each of the four cells, px")


def rows_of(table: pa.Table, split: str, classes: list[str], is_in: bool) -> np.ndarray:
    """Rows of one split, of the named classes or of all others."""
    names, splits = np.array(table["class_name"].to_pylist()), np.array(table["split"].to_pylist())
    is_of_split = (splits == "train") == (split == "train")
    return np.flatnonzero(is_of_split & (np.isin(names, classes) == is_in))


def choose(images: Path, spec: Collage, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the targets and of the backgrounds; ValueError for unknown classes and for a split without images."""
    beside, listed = spec.backgrounds or spec.targets, spec.background_classes
    targets, backgrounds = (read_table(images / task) for task in (spec.targets, beside))
    if unknown := sorted(set(listed) - set(backgrounds["class_name"].to_pylist())):
        raise ValueError(f"background_classes names {unknown[0]!r}, which is no class of {beside}")
    target_rows = rows_of(targets, split, listed if spec.targets == beside else [], is_in=False)
    background_rows = rows_of(backgrounds, split, listed, is_in=bool(listed))
    for rows, task in ((target_rows, spec.targets), (background_rows, beside)):
        if not len(rows):
            raise ValueError(f"{task} has no {split} image for the collages: name other tasks in gsp_collages")
    return target_rows, background_rows


def main(images: Path, output: Path, *, collages: str, params: Params, lists: Lists, seed: int) -> str:
    spec = lists.gsp_collages[collages]
    tasks = (spec.targets, spec.backgrounds or spec.targets)
    readers = [arrays.open(images / task / "pixels.zarr") for task in tasks]
    table, places, counts, columns = read_table(images / spec.targets), [], {}, []
    size = 2 * params.cell if spec.backgrounds else params.cell
    with outputs.folder(output) as folder:
        with arrays.create(folder / "pixels.zarr", (size, size, 3), "uint8", "image y x channel") as writer:
            for number, (split, copies) in enumerate((("train", spec.copies), ("test", 1))):
                rows, backgrounds = choose(images, spec, split)
                cells = [
                    collage.resize(reader[part], params.cell)
                    for reader, part in zip(readers, (rows, backgrounds), strict=True)
                ]
                if spec.backgrounds:
                    pixels, cell = collage.stitch(*cells, copies, np.random.default_rng([seed, number]))
                else:
                    pixels, cell = cells[0], np.zeros(len(rows), np.int64)
                writer.append(pixels)
                counts[split] = len(pixels)
                places += cell.tolist()
                columns.append(describe(table.take(np.repeat(rows, copies)), collages, split, copies))
        pq.write_table(pa.concat_tables(columns), folder / "table.parquet")
        write_csv(folder / "rejected.csv", [("path", "reason")])
        lines = [f"{row},{cell}" for row, cell in enumerate(places)]
        (folder / "places.csv").write_text("\n".join(["row,cell", *lines]) + "\n")
    return f"collages of {size} px: {counts['train']} to train, {counts['test']} to test"


def describe(taken: pa.Table, name: str, split: str, copies: int) -> pa.Table:
    """The targets' rows of the table with the collages' paths, set name and split."""
    paths = [f"{path}#{i % copies}" for i, path in enumerate(taken["path"].to_pylist())]
    for column, values in (("path", paths), ("task", [name] * len(taken)), ("split", [split] * len(taken))):
        taken = taken.set_column(TABLE.get_field_index(column), column, pa.array(values, pa.string()))
    return taken.cast(TABLE)


if __name__ == "__main__":
    command.run(main, Params)
