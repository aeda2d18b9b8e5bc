"""The outputs of a finished run, which the sections of the report share."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.findings import advice, chosen, collection, scores
from polygrain.report.rows import in_order
from polygrain.report.visible import visible
from polygrain.store.image_table import read_table
from polygrain.store.tables import read_csv
from polygrain.training.history import read_history

Content = dict[str, Any]  # of a template
History = list[dict[str, float]]


class Params(schema.Section):
    gains: int = Field(
        ge=0, le=20, description="queries with the largest gain, and with the largest loss, that are shown of each task"
    )
    thumbnail: int = Field(ge=16, le=512, description="largest side of a picture, in pixels")
    better: str = Field(
        max_length=4000,
        description="what to give `polygrain new` for the next better encoder, and its time; empty: nothing",
    )


class Places(NamedTuple):
    """The folders of the stages that a report reads."""

    images: Path
    pseudo_labels: Path
    adaptor: Path
    fusion: Path
    evaluation: Path
    choice: Path


@dataclass(frozen=True)
class TaskImages:
    """One task's table in columns, and the images left out of it; names as they can be shown."""

    name: str
    paths: list[str]
    labels: np.ndarray
    class_names: list[str]
    is_train: np.ndarray
    is_test: np.ndarray
    is_query: np.ndarray
    rejected: list[tuple[str, str]]

    @property
    def is_labelled(self) -> bool:
        return bool((self.labels >= 0).any())


@dataclass(frozen=True)
class Outcome:
    """A finished run. In `table` test images search each other, in `searched` new pictures search the collection.

    Both leave out rows that repeat another. `ks` are the clusters of each adaptor, `metrics` the numbers of all rows.
    """

    places: Places
    params: Params
    lists: Lists
    tasks: list[TaskImages]
    ks: dict[str, int]
    histories: dict[str, History]
    choice: chosen.Choice
    measured: scores.Scores
    table: scores.Scores
    searched: collection.CollectionReport
    metrics: dict[str, scores.Numbers]

    @property
    def trains(self) -> bool:
        return self.searched.trains

    @property
    def learns(self) -> bool:
        return bool(self.histories)

    @property
    def leads(self) -> bool:
        """Whether the first screen has the numbers of `searched`: where the collection trained."""
        return self.trains and self.searched.is_measured

    @property
    def leading(self) -> scores.Scores:
        return self.searched.table if self.leads else self.table

    @property
    def model(self) -> str | None:
        """The model in the summary."""
        return scores.headliner(self.table, self.lists.trained) if self.table.tasks else None

    @cached_property
    def advice(self) -> advice.Advice:
        places = self.places.choice, Path(self.lists.root)
        return advice.advise(
            self.choice, self.leading, self.searched.table, list(self.lists.tasks), *places, self.searched.unsmoothed
        )

    def sides(self, row: str) -> list[tuple[str, Path]]:
        """The encoder and the model of a row, each with the file of its queries by the protocol that leads."""
        model, plain = row.removesuffix(collection.SMOOTHED), "collection_" * self.leads + "queries.parquet"
        files = [(chosen.ENCODER, plain), (model, plain if model == row else "smoothed_queries.parquet")]
        return [(name, self.places.evaluation / name / file) for name, file in files]


def read(places: Places, params: Params, lists: Lists) -> Outcome:
    """`lists` names the items in their order."""
    models = in_order(lists.models, lists.trained)
    tasks = [read_task(places.images, name) for name in lists.tasks]
    counts = lists.clusters(sum(int(task.is_train.sum()) for task in tasks))
    histories = {f"adaptor@{name}": read_history(places.adaptor / name) for name in lists.trained}
    histories |= {f"fusion@{name}": read_history(places.fusion / name) for name in lists.fusions}
    choice = chosen.read(places.choice)
    measured = scores.read(places.evaluation, models, lists.trained, lists.tasks)
    trains = any((task.is_train & task.is_test).any() for task in tasks)
    searched = collection.read(places.evaluation, models, list(lists.tasks), trains)
    metrics = scores.as_json(measured) | collection.as_json(searched)
    ks = {name: counts[name] for name in lists.trained}
    tables = distinct(measured, searched, choice)
    return Outcome(places, params, lists, tasks, ks, histories, choice, measured, *tables, metrics)


def read_task(images: Path, name: str) -> TaskImages:
    table = read_table(images / name)
    rejected = [(visible(row["path"]), visible(row["reason"])) for row in read_csv(images / name / "rejected.csv")]
    is_train = np.array(table["trains"].to_pylist(), dtype=bool)
    is_test = np.array([split != "train" for split in table["split"].to_pylist()], dtype=bool)
    is_query = np.array(table["is_query"].to_pylist(), dtype=bool)
    paths, classes = ([visible(entry) for entry in table[column].to_pylist()] for column in ("path", "class_name"))
    return TaskImages(name, paths, table["label"].to_numpy(), classes, is_train, is_test, is_query, rejected)


def distinct(
    table: scores.Scores, searched: collection.CollectionReport, made: chosen.Choice
) -> tuple[scores.Scores, collection.CollectionReport]:
    """Both tables without the rows that repeat another: the encoder's side may be kept, its best form be chosen."""
    is_best = made.taken is not None and made.taken.model == chosen.ENCODER and not searched.is_trained
    is_kept = table.rows.get(scores.SIDE) == table.rows.get(chosen.ENCODER)
    for model in [scores.SIDE] * is_kept + [scores.WITHOUT_TRAINING] * is_best:
        table, searched = table.without(model), searched.without(model)
    return table, searched
