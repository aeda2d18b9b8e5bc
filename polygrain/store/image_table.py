"""The images of several tasks as one collection: tables, pixels, features, and lists of few labelled images."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from polygrain.store import arrays
from polygrain.store.mapped_rows import Subset
from polygrain.store.reading import read_json, read_lines, reading, remedy_for

TABLE = pa.schema(
    [
        ("path", pa.string()),
        ("task", pa.string()),
        ("label", pa.int32()),
        ("class_name", pa.string()),
        ("split", pa.string()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("bytes", pa.int64()),
        ("sha256", pa.string()),
        ("is_query", pa.bool_()),
        ("trains", pa.bool_()),
    ]
)


@dataclass(frozen=True)
class ImageTable:
    """One entry per image; `rows` counts within the image's task, and labels are class numbers within it, -1 for none.

    `is_train`: what trains. `is_test`: of a class that the protocol `classes` tests. `is_query`: the protocol
    `collection` asks with it and searches the others.
    """

    tasks: np.ndarray
    labels: np.ndarray
    is_train: np.ndarray
    is_test: np.ndarray
    is_query: np.ndarray
    rows: np.ndarray

    @property
    def train(self) -> np.ndarray:
        """The training images of all tasks, as rows of the whole collection."""
        return np.flatnonzero(self.is_train)

    def some(self, rows: np.ndarray) -> "ImageTable":
        """These rows alone."""
        return ImageTable(*(getattr(self, column.name)[rows] for column in fields(self)))

    def train_classes(self) -> np.ndarray:
        """A class number per training image, counted over all tasks; ValueError if one has no label."""
        tasks, labels = self.tasks[self.train], self.labels[self.train]
        if (labels < 0).any():
            raise ValueError(f"task {tasks[labels < 0][0]} has no labels; supervised training needs them")
        pairs = sorted(set(zip(tasks.tolist(), labels.tolist(), strict=True)))
        number = {pair: i for i, pair in enumerate(pairs)}
        return np.array([number[pair] for pair in zip(tasks.tolist(), labels.tolist(), strict=True)], dtype=np.int64)


def read_table(folder: Path) -> pa.Table:
    """The table of one task's images; ValueError if it is missing or has other columns."""
    file = folder / "table.parquet"
    with reading(file, remedy_for(folder)):
        table = pq.read_table(file)
    if not table.schema.equals(TABLE):
        raise ValueError(f"{file} has columns {table.schema.names}, expected {TABLE.names}; run the pipeline again")
    return table


def read_tables(images: Path, tasks: list[str]) -> ImageTable:
    """All images of the tasks, in this order; no pixel is read."""
    tables = [read_table(images / task) for task in tasks]
    joined = pa.concat_tables(tables)
    return ImageTable(
        tasks=np.array(joined["task"].to_pylist(), dtype=object),
        labels=joined["label"].to_numpy().astype(np.int64),
        is_train=np.array(joined["trains"].to_pylist(), dtype=bool),
        is_test=np.array([split != "train" for split in joined["split"].to_pylist()], dtype=bool),
        is_query=np.array(joined["is_query"].to_pylist(), dtype=bool),
        rows=np.concatenate([np.arange(len(table)) for table in tables]),
    )


def open_pixels(images: Path, tasks: list[str]) -> arrays.Reader:
    """The pixels of all tasks, rows as in `read_tables`."""
    return arrays.concatenate([arrays.open(images / task / "pixels.zarr") for task in tasks])


def open_outputs(features: Path, tasks: list[str]) -> tuple[arrays.Reader, dict[str, Any]]:
    """The stored outputs of the encoder's blocks, rows as in `read_tables`, and what `features.json` says of them.

    ValueError for tasks that do not fit together.
    """
    folders = [features / task for task in tasks]
    facts = [read_json(folder / "features.json") for folder in folders]
    for folder, other in zip(folders, facts, strict=True):
        if other != facts[0]:
            raise ValueError(f"{folder} is of another encoder or side than {folders[0]}: run `dvc repro features`")
    return arrays.concatenate([arrays.open(folder / "features.zarr") for folder in folders]), facts[0]


def open_features(features: Path, tasks: list[str]) -> arrays.Reader:
    """The encoder's features of all tasks, rows as in `read_tables`."""
    outputs, facts = open_outputs(features, tasks)
    return outputs.columns(facts["embedding"])


def open_train_features(features: Path, tasks: list[str], collection: ImageTable) -> Subset:
    """The encoder's features of the training images, in float32, read on demand."""
    return Subset(open_features(features, tasks), collection.train)


def share_file(folder: Path, share: float) -> Path:
    """The list of training images that stands for a share of them, named as SimCLR has it: `1percent.txt` for .01."""
    return folder / f"{100 * share:g}percent.txt"


def write_share(folder: Path, share: float, paths: Iterable[str]) -> None:
    """Stores the list of a share beside a task's images, a path a line."""
    (folder / "shares").mkdir(exist_ok=True)
    share_file(folder / "shares", share).write_text("".join(f"{path}\n" for path in paths), encoding="utf-8")


def read_share(folder: Path, share: float) -> list[str] | None:
    """The stored paths of a share; None if there is no such list."""
    file = share_file(folder / "shares", share)
    return read_lines(file, remedy_for(folder)) if file.exists() else None
