"""The MRT benchmark beside the published paper: Tables 1 to 5, each number ours, published, and the difference.

Reads   images/<task>/table.parquet, evaluation/<model>/{metrics.json, whitened.json, attention.parquet}
Writes  index.html    one self-contained page
        table.md      the same tables
        metrics.json  {table: {model: {task: {r_precision, published_r_precision, difference_r_precision, ...}}}}

The first thing it says is whether the encoder alone repeats its published row: that needs no training, and nothing else
is worth reading before it holds.
"""

import math
from pathlib import Path

import numpy as np
from pydantic import Field

from polygrain.config import schema
from polygrain.config.lists import Lists, clusters_of
from polygrain.findings import scores, wording
from polygrain.findings.sections.curves import granularity_charts
from polygrain.grappa.report import published
from polygrain.report import page
from polygrain.report.rows import WHITENED, in_order
from polygrain.runner import command, outputs
from polygrain.sources.datasets.sets import SETS
from polygrain.store import image_table
from polygrain.store.tables import read_parquet

COUNTS = ("train_classes", "train_images", "test_classes", "test_images")
TOTAL = "all that train"


class Params(schema.Section):
    attention_of: schema.Name = Field(description="the fusion whose attention is summed up")

    def fits(self, lists: Lists) -> None:
        """ValueError for a fusion that params.yaml does not list, or that has no attention."""
        names = [name for name in lists.fusions if name != "average"]
        if lists.mrt and self.attention_of not in names:
            raise ValueError(f"mrt_report.attention_of is {self.attention_of!r}; known here: {', '.join(names)}")


def count_rows(images: Path, lists: Lists) -> list[dict]:
    """Table 1: classes and images of each half, ours, published (None where not) and the difference.

    The tasks that train, their sum, then the unseen ones.
    """
    rows = []
    for name, task in lists.tasks.items():
        table = image_table.read_table(images / name)
        is_train = np.array([split == "train" for split in table["split"].to_pylist()], dtype=bool)
        labels = table["label"].to_numpy()
        ours = {}
        for half, mask in (("train", is_train), ("test", ~is_train)):
            ours |= {f"{half}_classes": len(set(labels[mask].tolist())), f"{half}_images": int(mask.sum())}
        counts = SETS[task.source].counts if task.source in SETS else None
        printed = {key: counts and counts.printed.get(key, getattr(counts, key)) for key in COUNTS}
        rows.append(count_row(name, ours, printed, task.unseen))
    seen, unseen = ([row for row in rows if row["unseen"] == flag] for flag in (False, True))
    ours, printed = ({key: add([row[side][key] for row in seen]) for key in COUNTS} for side in ("ours", "published"))
    return [*seen, count_row(TOTAL, ours, printed, False), *unseen]


def count_row(name: str, ours: dict[str, int], printed: dict[str, int | None], unseen: bool) -> dict:
    difference = {key: None if printed[key] is None else ours[key] - printed[key] for key in COUNTS}
    return {"task": name, "ours": ours, "published": printed, "difference": difference, "unseen": unseen}


def add(values: list[int | None]) -> int | None:
    """The sum; None where one of them is not known."""
    return None if None in values else sum(values)


def compare_all(table: scores.Scores, lists: Lists) -> list[published.PublishedTable]:
    """Tables 2 to 5. What the paper does not have (whitening, the closed form, the static graph) follows in Table 2."""
    printed = {number: of_data_sets(rows, lists) for number, rows in published.read().items()}
    seen = [name for name in table.tasks if not lists.tasks[name].unseen]
    unseen = [name for name in table.tasks if lists.tasks[name].unseen]
    joint = [name for name, item in lists.supervised_models.items() if item.on == "all"]
    single = [name for name in lists.supervised_models if name not in joint]
    bounds = [*lists.supervised_models, "supervised"]
    own = [row for row in table.rows if row.removesuffix(WHITENED) not in bounds]
    alone = [row for row in own if not row.endswith(WHITENED)]
    fused = [row for row in ("encoder", *lists.fusions) if row in alone]
    own = [*alone, *(f"{row}{WHITENED}" for row in fused)]
    selections = {
        2: (seen, own),
        3: (seen, single),
        4: (unseen, [*joint, *alone]),
        5: (seen, ["supervised"] if "supervised" in lists.models else []),
    }
    return [
        published.compare(number, printed[number], table, tasks, more) for number, (tasks, more) in selections.items()
    ]


def of_data_sets(rows: dict[str, scores.Numbers], lists: Lists) -> dict[str, scores.Numbers]:
    """Printed rows, less tasks of ours that bear a data set's name and hold other images: those have no printed row."""
    others = {name for name, task in lists.tasks.items() if task.source != name}
    return {
        model: {task: numbers for task, numbers in row.items() if task not in others} for model, row in rows.items()
    }


def granularity_use(evaluation: Path, model: str, sizes: dict[str, int]) -> list[dict]:
    """Per task how much each granularity weighs, its favourite, and the typical number of clusters (geometric mean)."""
    file = evaluation / model / "attention.parquet"
    if not file.exists():
        return []
    entries = [entry for entry in read_parquet(file).to_pylist() if entry["adaptor"] in sizes]
    rows = []
    for task in dict.fromkeys(entry["task"] for entry in entries):
        task_entries = [entry for entry in entries if entry["task"] == task]
        weights = {name: float(np.mean([e["weight"] for e in task_entries if e["adaptor"] == name])) for name in sizes}
        last_layer = max(entry["layer"] for entry in task_entries)
        late = {e["adaptor"]: e["weight"] for e in task_entries if e["layer"] == last_layer}
        typical = 2 ** sum(weight * math.log2(sizes[name]) for name, weight in weights.items())
        favourite = max(weights, key=lambda name: weights[name])
        last = max(late, key=lambda name: late[name])
        rows.append({"task": task, "weights": weights, "favourite": favourite, "last": last, "typical": round(typical)})
    return rows


def main(images: Path, evaluation: Path, output: Path, *, params: Params, lists: Lists) -> str:
    models = in_order(lists.models, lists.trained)
    table = scores.read(evaluation, models, lists.trained, lists.tasks)
    tables = compare_all(table, lists)
    unsupervised, *_ = tables
    check = published.check(unsupervised)
    sizes = {name: clusters_of(name, 1) for name in lists.trained}
    seen = [name for name in table.tasks if not lists.tasks[name].unseen]
    content = {
        "check": check,
        "tolerance": published.TOLERANCE,
        "counts": count_rows(images, lists),
        "count_keys": COUNTS,
        "total": TOTAL,
        "tables": tables,
        "gains": {item.number: published.gains(item) for item in tables},
        "use": granularity_use(evaluation, params.attention_of, sizes),
        "attention_of": params.attention_of,
        "sizes": sizes,
        "curves": granularity_charts(table.over(seen), sizes, published.as_scores(2, seen)),
    }
    with outputs.folder(output) as folder:
        page.write(
            folder,
            "grappa/report/mrt",
            content | wording.WORDS,
            published.as_json(tables) | {"encoder_repeats_its_row": check["holds"]},
        )
    measured = sum(item.is_measured for item in tables)
    return f"{measured} of {len(tables)} tables measured, the encoder repeats its published row: {check['holds']}"


if __name__ == "__main__":
    command.run(main, Params)
