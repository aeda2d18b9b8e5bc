"""The report: one HTML page that opens offline, and the same numbers for `dvc metrics` and `dvc plots`.

Reads   images/<task>/{pixels.zarr, table.parquet, rejected.csv}, pseudo_labels/<k>/labels.zarr, history.csv of every
        adaptor and fusion, evaluation/<model>/{metrics.json, whitened.json,
        queries.parquet, ranked.parquet, attention.parquet; collection.json, smoothed.json, and the
        queries and ranked lists of both},
        choice/{choice.json, criterion.csv, neighbours.parquet}; exactly the items that params.yaml lists.
Writes  index.html    everything, self-contained
        table.md      the results table
        metrics.json  {model: {task or "mean": {r_precision, map_at_r, recall_at_1}}} in percent, and
                      <model>_whitened
        curves.csv    task,model,k,item,r_precision,map_at_r,recall_at_1,r_precision_whitened, a row per task and model
        training.csv  stage,epoch,loss,accuracy,criterion,turnover
        runs/         <model>.parquet and images.parquet, the ranked lists for programs of others (findings/runs.py)
        headline.json the few numbers that a commit is judged by, for `dvc metrics`: means over the tasks, in percent
"""

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.findings import (
    advice,
    charts,
    chosen,
    collection,
    fusions,
    headline,
    neighbours,
    paired,
    queries,
    runs,
    scores,
    wording,
)
from polygrain.report import page
from polygrain.report.visible import visible
from polygrain.runner import command, outputs
from polygrain.store import arrays
from polygrain.store.image_table import read_table
from polygrain.store.tables import read_csv, write_csv
from polygrain.training.history import read_history

Content = dict[str, Any]  # of the template
History = list[dict[str, int | float]]
COPIES = "duplicate of ", "same picture as "  # begin the reason why a copy was left out
REASONS = 20


class Params(schema.Section):
    gains: int = Field(
        ge=0, le=20, description="queries with the largest gain, and with the largest loss, that are shown of each task"
    )
    thumbnail: int = Field(ge=16, le=512, description="largest side of a picture, in pixels")
    better: str = Field(
        max_length=4000,
        description="what to give `polygrain new` for the next better encoder, and its time; empty: nothing",
    )


@dataclass(frozen=True)
class Task:
    """One task's table in columns, and what was left out of it; names as they can be shown."""

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


def read_task(images: Path, name: str) -> Task:
    table = read_table(images / name)
    rejected = [(visible(row["path"]), visible(row["reason"])) for row in read_csv(images / name / "rejected.csv")]
    is_train = np.array(table["trains"].to_pylist(), dtype=bool)
    is_test = np.array([split != "train" for split in table["split"].to_pylist()], dtype=bool)
    is_query = np.array(table["is_query"].to_pylist(), dtype=bool)
    paths, classes = ([visible(entry) for entry in table[column].to_pylist()] for column in ("path", "class_name"))
    return Task(name, paths, table["label"].to_numpy(), classes, is_train, is_test, is_query, rejected)


def task_counts(task: Task, asked_of: dict[str, int]) -> dict:
    """What a task holds and what was left out; None where a count has no meaning."""
    parts = (task.is_train, task.is_test)
    train_classes, test_classes = (len(set(task.labels[part & (task.labels >= 0)])) for part in parts)
    test = int(task.is_test.sum())
    asked = asked_of.get(task.name, 0) if task.is_labelled else None
    duplicates = sum(reason.startswith(COPIES) for _, reason in task.rejected)
    return {
        "task": task.name,
        "images": len(task.labels),
        "train": int(task.is_train.sum()),
        "test": test,
        "drawn": int(task.is_query.sum()) if task.is_labelled else None,
        "classes": len(set(task.labels[task.labels >= 0])) if task.is_labelled else None,
        "train_classes": train_classes if task.is_labelled else None,
        "test_classes": test_classes if task.is_labelled else None,
        "queries": asked,
        "left_out": None if asked is None else test - asked,
        "duplicates": duplicates,
        "rejected": len(task.rejected) - duplicates,
    }


def left_out(tasks: Iterable[Task]) -> list[dict]:
    """Per task and reason the files that were left out; the most frequent `REASONS` first."""
    files: dict[tuple[str, str], list[str]] = {}
    for task in tasks:
        for path, reason in task.rejected:
            kind = next((copy + "another" for copy in COPIES if reason.startswith(copy)), reason)
            files.setdefault((task.name, kind), []).append(path)
    rows = [{"task": task, "reason": reason, "files": of} for (task, reason), of in files.items()]
    return sorted(rows, key=lambda row: -len(row["files"]))[:REASONS]


def cluster_counts(pseudo_labels: Path, granularities: Iterable[str], tasks: Sequence[Task]) -> list[dict]:
    """Per granularity the size of its clusters, and how many of them hold images of more than one task."""
    owners = np.repeat(np.arange(len(tasks)), [int(task.is_train.sum()) for task in tasks])
    rows = []
    for name in granularities:
        labels = arrays.open(pseudo_labels / name / "labels.zarr")[:]
        if len(labels) != len(owners):
            raise ValueError(
                f"{pseudo_labels / name} labels {len(labels)} images, the tables hold {len(owners)}; run again"
            )
        sizes = np.bincount(labels)
        k = len(sizes)
        tasks_of = Counter(cluster for cluster, _ in set(zip(labels.tolist(), owners.tolist(), strict=True)))
        mixed = sum(count > 1 for count in tasks_of.values())
        row = {"name": name, "clusters": k, "mean": len(labels) / k, "median": float(np.median(sizes))}
        rows.append(row | {"smallest": int(sizes.min()), "largest": int(sizes.max()), "mixed": mixed})
    return rows


def distinct(
    table: scores.Scores, searched: collection.CollectionReport, made: chosen.Choice
) -> tuple[scores.Scores, collection.CollectionReport]:
    """Both tables without the rows that repeat another: the encoder's side may be kept, its best form be chosen."""
    is_best = made.taken is not None and made.taken.model == chosen.ENCODER and not searched.is_trained
    is_kept = table.rows.get(scores.SIDE) == table.rows.get(chosen.ENCODER)
    for model in [scores.SIDE] * is_kept + [scores.WITHOUT_TRAINING] * is_best:
        table, searched = table.without(model), searched.without(model)
    return table, searched


def curve_rows(table: scores.Scores, granularities: dict[str, int]) -> list[list]:
    """One row per task (and mean) and model, oracle left out; `k` is empty for what has no granularity."""
    models = [row for row in table.rows if not row.endswith(scores.WHITENED) and row != scores.ORACLE]
    rows = [["task", "model", "k", "item", *scores.METRICS, "r_precision_whitened"]]
    for column in [*table.tasks, scores.MEAN] if table.tasks else []:
        for model in models:
            numbers = [table.get(model, column, metric) for metric in scores.METRICS]
            numbers.append(table.get(model + scores.WHITENED, column))
            shown = ["" if math.isnan(number) else number for number in numbers]
            rows.append([column, model, granularities.get(model, ""), f"{column} {model}", *shown])
    return rows


def training_rows(histories: dict[str, History]) -> list[list]:
    """One row per epoch of every adaptor and fusion."""
    measured = ["accuracy", "criterion", "turnover"]
    epochs = [
        [stage, int(row["epoch"]), row["loss"], *(row.get(name, "") for name in measured)]
        for stage, rows in histories.items()
        for row in rows
    ]
    return [["stage", "epoch", "loss", *measured], *epochs]


def choice_section(made: chosen.Choice, recommended: advice.Advice, better: str, lists: Lists) -> Content:
    """What to use, why it was chosen, and commands that can be copied whole.

    Images are named by their table in data/, not by their folder, which is another one on another machine.
    """
    criteria = [end for sides in made.compared.values() for side in ("encoder", "recommended") for end in sides[side]]
    ends = [value for row in recommended.rows for value in (row.encoder, row.recommended)]
    words, _, time = better.rpartition(", ")
    command, time = (words, time) if words else (time, "")
    if command.startswith("--"):  # of a profile of before
        command = f"polygrain new NAME --images IMAGES {command}"
    is_chosen = recommended.row.startswith(scores.RECOMMENDED)
    first = Path(f"data/gallery/{next(iter(lists.tasks))}/embeddings.parquet").absolute()
    return {
        "advice": recommended,
        "used": wording.title_of(recommended.row.removesuffix(collection.SMOOTHED)).name.lower(),
        "searched": os.path.relpath(first, lists.root) if is_chosen else None,
        "better": better and {"command": command, "time": time},
        "choice": made,
        "place": wording.placement([*ends, recommended.before, recommended.after]),
        "place_criterion": wording.placement(criteria),
    }


def sides_of(row: str, leads: bool) -> list[tuple[str, str]]:
    """The encoder and the model of a row, each with the file that holds its queries by the protocol that leads."""
    model, plain = row.removesuffix(collection.SMOOTHED), "collection_queries.parquet" if leads else "queries.parquet"
    return [(chosen.ENCODER, plain), (model, plain if model == row else "smoothed_queries.parquet")]


def paired_with_encoder(evaluation: Path, row: str, leads: bool) -> dict[str, paired.Paired]:
    """The test of the recommended row against the encoder, as one of all rows that the labels could recommend."""
    plain = [chosen.ENCODER, scores.RECOMMENDED, scores.WITHOUT_TRAINING]
    names = [chosen.ENCODER, row, *plain, *(name + collection.SMOOTHED for name in plain if leads)]
    sides = [sides_of(name, leads)[1] for name in dict.fromkeys(names)]
    before, after, *others = [evaluation / model / file for model, file in sides]
    if row == chosen.ENCODER or not before.exists() or not after.exists():
        return {}
    return paired.compare(
        *map(queries.read_queries, (before, after)), [queries.read_queries(file) for file in others if file.exists()]
    )


def results_section(table: scores.Scores, model: str | None, ks: dict[str, int], lists: Lists) -> Content:
    """The numbers of all models, of which `model` is in the summary; `ks` are the clusters of each adaptor."""
    return {
        "scores": table,
        "model": model,
        "best": wording.best_rows(table, [*lists.supervised_models, "supervised"]),
        "has_encoder": chosen.ENCODER in table.rows,
        "curves": charts.granularity_charts(table, ks),
    }


def queries_section(
    images: Path,
    evaluation: Path,
    tasks: Sequence[Task],
    row: str,
    leads: bool,
    unsmoothed: Sequence[str],
    params: Params,
) -> Content:
    """Per task some queries under the encoder and the model of a row, and how many queries gained or lost.

    `examples` are the median of all queries, the largest gain and the largest loss.
    """
    sides = sides_of(row, leads)
    read = [queries.read_queries(evaluation / model / file) for model, file in sides]
    galleries, orders, given = [], dict[str, list[queries.Compared]](), {}
    for task in tasks:
        titles = [
            wording.title_of(name).name + ", smoothed" * (file.startswith("smoothed") and task.name not in unsmoothed)
            for name, file in sides
        ]
        both = [(title, rows.get(task.name, {})) for title, rows in zip(titles, read, strict=True)]
        order = queries.compare(both[0][1], both[1][1], task.labels, ~task.is_query if leads else task.is_test)
        if not order:
            continue
        orders[task.name], given[task.name] = order, (images / task.name, task.labels, task.class_names, both)
        selected = queries.select_queries(order, task.labels, params.gains)
        entries = queries.show(*given[task.name], selected, params.thumbnail)
        galleries.append({"task": task.name, "counts": queries.changes(order), "entries": entries})
    examples = []
    for name, reason, one in queries.first_screen(orders):
        examples += queries.show(*given[name], [(f"{name}: {reason}", one)], params.thumbnail)
    return {"galleries": galleries, "examples": examples}


def votes_section(
    images: Path, tasks: Sequence[Task], samples: dict[str, list[neighbours.Neighbours]], params: Params
) -> Content:
    """Of these tasks, which have no labels, drawn images with both lists under hidden names, for a vote."""
    shown = []
    for task in tasks:
        of_task = samples.get(task.name, [])
        if asked := neighbours.drawn(of_task, neighbours.VOTES):
            entries = neighbours.show(images / task.name, task.paths, asked, params.thumbnail)
            counts = {"all": len(of_task), "same": sum(not one.differs for one in of_task)}
            shown.append({"task": task.name, "counts": counts, "entries": entries})
    return {"votes": shown}


def attention_section(fusion: Path, evaluation: Path, table: scores.Scores, lists: Lists) -> Content:
    """What fusions attend to, what they learnt, and what that is worth."""
    names = [name for name in scores.in_order(lists.models, lists.trained) if name in lists.fusions]
    return {
        "attention": charts.attention_maps(evaluation, names, lists.tasks),
        "fused": fusions.rows(fusion, evaluation, lists.fusions, table),
        "headroom": fusions.headroom(table),
    }


def training_section(histories: dict[str, History]) -> Content:
    return {
        "training": charts.training_charts(histories),
        "idle": [stage for stage, history in histories.items() if not history],
    }


def data_section(tasks: Sequence[Task], table: scores.Scores, pseudo_labels: Path, lists: Lists) -> Content:
    """What the tasks hold, how they were clustered, and which files were left out."""
    return {
        "counts": [task_counts(task, table.queries) for task in tasks],
        "has_labels": any(task.is_labelled for task in tasks),
        "clusters": cluster_counts(pseudo_labels, lists.clusters(1), tasks),
        "rejected": left_out(tasks),
    }


def branches_section(lists: Lists) -> Content:
    """The reports of the other branches of the graph, by their place beside this one; each is a stage of its own."""
    branches = {"gsp": lists.gsp, "tll": lists.tll, "mpcl": lists.mpcl, "mrt": lists.mrt}
    pages = [
        {"branch": branch, "item": item, "address": f"../{branch}_report/{item}/index.html"}
        for branch, items in branches.items()
        for item in items
    ]
    return {"pages": pages}


def main(
    images: Path,
    pseudo_labels: Path,
    adaptor: Path,
    fusion: Path,
    evaluation: Path,
    choice: Path,
    output: Path,
    *,
    params: Params,
    lists: Lists,
) -> str:
    """Draws the report from what the other stages wrote; `lists` names the items in their order."""
    # What the stages wrote.
    models = scores.in_order(lists.models, lists.trained)
    tasks = [read_task(images, name) for name in lists.tasks]
    counts = lists.clusters(sum(int(task.is_train.sum()) for task in tasks))
    ks = {name: counts[name] for name in lists.trained}
    histories = {f"adaptor@{name}": read_history(adaptor / name) for name in lists.trained}
    histories |= {f"fusion@{name}": read_history(fusion / name) for name in lists.fusions}
    made, samples = chosen.read(choice), neighbours.read(choice)
    measured = scores.read(evaluation, models, lists.trained, lists.tasks)
    trains = any((task.is_train & task.is_test).any() for task in tasks)
    searched = collection.read(evaluation, models, list(lists.tasks), trains)
    metrics = scores.as_json(measured) | collection.as_json(searched)

    # The table that leads: new pictures search the collection where its images trained, else test images each other.
    table, searched = distinct(measured, searched, made)
    leads = trains and searched.is_measured
    leading = searched.table if leads else table
    places = choice, Path(lists.root)
    recommended = advice.advise(made, leading, searched.table, list(lists.tasks), *places, searched.unsmoothed)
    model = scores.headliner(table, lists.trained) if table.tasks else None

    # The page, part by part.
    content: Content = {
        "collection": searched,
        "leading": leading,
        "steps": collection.steps(leading, recommended.row),
        "twins": collection.twins(evaluation, searched.table),
        "params": params,
        "trains": trains,
        "leads": leads,
        "unseen": [name for name, task in lists.tasks.items() if task.unseen],
        "learns": bool(histories),
        "galleries": [],
        "examples": [],
        "paired": paired_with_encoder(evaluation, recommended.row, leads),
        **wording.WORDS,
        **choice_section(made, recommended, params.better, lists),
        **results_section(table, model, ks, lists),
        **votes_section(
            images, [task for task in tasks if task.name not in {*table.tasks, *leading.tasks}], samples, params
        ),
        **attention_section(fusion, evaluation, table, lists),
        **training_section(histories),
        **data_section(tasks, table, pseudo_labels, lists),
        **branches_section(lists),
    }
    if model and chosen.ENCODER in table.rows:
        shown = recommended.row if recommended.row in leading.rows.keys() - {chosen.ENCODER} else model
        content |= queries_section(images, evaluation, tasks, shown, leads, searched.unsmoothed, params)
    known = headline.numbers(leading if leads else measured, made, searched.table, recommended)
    with outputs.folder(output) as folder:
        page.write(folder, "findings/report", content, metrics)
        (folder / "headline.json").write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        runs.write(evaluation, models, {name: read_table(images / name) for name in lists.tasks}, folder / "runs")
        write_csv(folder / "curves.csv", curve_rows(measured, ks))
        write_csv(folder / "training.csv", training_rows(histories))
    size = (output / "index.html").stat().st_size
    words = headline.spoken(known) or "nothing was measured"
    return f"{words}; index.html {size / 2**20:.1f} MiB"


if __name__ == "__main__":
    command.run(main, Params)
