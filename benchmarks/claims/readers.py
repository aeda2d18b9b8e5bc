"""What a finished run has measured: functions from the graph's folder to rows of side, quantity, value and error.

A fraction becomes percent. An error is a standard error measured within the run; None where there is none.
"""

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from polygrain.config.compose import read_params
from polygrain.gsp.folds.images import read_images
from polygrain.store.reading import read_json
from polygrain.tll.adaptation import results
from polygrain.tll.adaptation.results import over_runs
from stages.mpcl_report import read_probe

Row = tuple[str, str, float, float | None]


def evaluation(folder: Path, without: tuple[str, ...] = ()) -> Iterator[Row]:
    """R-Precision of each model on each task, with `mean` of those that train and `unseen` of the others."""
    tasks = read_params(folder / "params.yaml")["tasks"]
    unseen = {name for name, task in tasks.items() if task.get("unseen")}
    means = {"mean": tasks.keys() - unseen, "unseen": unseen}
    if without:
        means[f"mean without {' and '.join(without)}"] = tasks.keys() - unseen - {*without}
    for model in sorted(folder.glob("data/evaluation/*/metrics.json")):
        scores = {task: 100 * values["r_precision"] for task, values in read_json(model).items()}
        averages = {name: fmean(scores[task] for task in of) for name, of in means.items() if of}
        yield from ((model.parent.name, name, value, None) for name, value in (averages | scores).items())


def gsp(folder: Path) -> Iterator[Row]:
    """MAP@R and recall of each run, `map_at_r` with folds apart and `map_at_r concat` with folds side by side."""
    for file in sorted(folder.glob("data/gsp_ensemble/*/metrics.json")):
        for run, forms in read_json(file).items():
            for form, suffix in (("separate", ""), ("concat", " concat")):
                for metric, spread in forms[form].items():
                    yield run, metric + suffix, 100 * spread["mean"], None


def attributes(folder: Path) -> Iterator[Row]:
    """MAP of unmet classes by attributes, a side for each run; `chance of RUN` ranks them at random."""
    for name, images in read_params(folder / "params.yaml")["gsp"].items():
        labels = read_images(folder / "data" / images).labels
        for run, measures in read_json(folder / f"data/gsp_ensemble/{name}/transfer.json").items():
            rows = read_json(folder / f"data/gsp_folds/{run}-0-0/config.json")["rows"]
            unmet = len(set(labels[rows].tolist())) // 2
            for metric in ("map_by_distance", "map_by_cosine"):
                yield run, f"{name} {metric}", 100 * measures[metric], None
                yield f"chance of {run}", f"{name} {metric}", 100 * fmean(1 / (n + 1) for n in range(unmet)), 0


def study(folder: Path, error: float | None = None) -> Iterator[Row]:
    """Each percent of the small studies, `STUDY MEASURE`."""
    for file in sorted(folder.glob("data/gsp_study/*/metrics.json")):
        for side, measures in read_json(file).items():
            yield from ((side, f"{file.parent.name} {name}", value, error) for name, value in measures.items())


def mpcl(folder: Path) -> Iterator[Row]:
    """Every measure of each run and of its start (`RUN start`), mean over tasks."""
    for run in sorted(folder.glob("data/mpcl_probe/*/")):
        for part, tasks in read_probe(run).items():
            for name, value in tasks.get("mean", {}).items():
                yield run.name + " start" * (part == "start"), name, value, None


def tll(folder: Path) -> Iterator[Row]:
    """aR@1 of each row, and each row's gain over those before it, whose error is of a bootstrap over pairs.

    A factor is aR@k of the last row over that of the first; its error is the deviation over splits, which is too large
    since a split tests a quarter of the pairs.
    """
    from polygrain.tll.extractors import published  # by way of torchvision, which takes seconds and a page needs not

    for place in sorted(folder.glob("data/tll_adaptation/*/")):
        study = results.read(place)
        for i, row in enumerate(study.rows):
            yield row, f"{place.name} aR@1", float(study.recalls[row, "last"][:, 0].mean()), None
            for before in study.rows[:i]:
                gain = study.gain(before, row)
                yield f"{row} less {before}", f"{place.name} aR@1", gain.difference, (gain.high - gain.low) / 3.92
        first, last = (study.recalls[row, "last"] for row in (study.rows[0], study.rows[-1]))
        factors = {k: last[:, k - 1] / first[:, k - 1] for k in published.FACTORS}
        for low, high in pairwise(factors):
            growth = over_runs(factors[high] - factors[low])
            yield f"factor at {high} less at {low}", f"{place.name} aR@k", growth.mean, growth.deviation


def lines(folder: Path, **names: str) -> Iterator[Row]:
    """The JSON lines of a command; side and quantity are templates over a line's keys, value and error are keys."""
    given = {"side": "{side}", "quantity": "{quantity}", "value": "value", "error": "error"} | names
    for line in (folder / "output.jsonl").read_text(encoding="utf-8").splitlines():
        facts: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
        if given["value"] in facts:
            side, quantity = (given[name].format_map(facts) for name in ("side", "quantity"))
            yield side, quantity, facts[given["value"]], facts.get(given["error"])


READERS: dict[str, Callable[..., Iterator[Row]]] = {
    read.__name__: read for read in (evaluation, gsp, attributes, study, mpcl, tll, lines)
}
