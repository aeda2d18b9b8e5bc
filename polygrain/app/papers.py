"""Printed results that whoever has a network and a GPU can repeat: their data, time, and ours beside the print."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from polygrain.config.lists import Lists
from polygrain.grappa.report import published as grappa
from polygrain.gsp.report import published as gsp
from polygrain.new.estimate import shown
from polygrain.sources.datasets import load
from polygrain.sources.datasets.addresses import SOURCES
from polygrain.store.reading import read_json
from polygrain.tll.adaptation import results
from polygrain.tll.extractors import published as tll

Values = dict
Line = tuple[str, float, float]
"""A name, ours, and the printed number, NaN where there is none; percent."""
TLL_HOME = (
    "https://sites.google.com/view/totally-looks-like-dataset, as left/00001.jpg and right/00001.jpg, and TLL_obj.csv "
    "of https://github.com/VieVie31/visual-similarity"
)
IMAGES = {"cifar100": 50_000, "cub": 11_788}


class Study(NamedTuple):
    """What it repeats, the stage of each profile to run, and what takes its time: `work` is at least and at most."""

    what: str
    profiles: tuple[str, ...]
    stage: str
    unit: str
    seconds: float
    work: Callable[[Values], tuple[int, int]]
    beside: Callable[[Path, Values], Iterator[Line]]


def steps(values: Values) -> tuple[int, int]:
    """Training steps of all runs: from the first in which each may stop to the last."""
    stopping, trained = values["gsp_folds"]["stopping"], len(values["gsp_trainings"])
    before = 0
    if classifiers := len(values["gsp_classifiers"]):
        of = values["gsp_classifier"]
        before = classifiers * of["epochs"] * IMAGES["cifar100"] // of["batch"]
    least = min(stopping["longest"], (stopping["patience"] + 1) * stopping["every"])
    return before + trained * least, before + trained * stopping["longest"]


def two_sides(values: Values) -> tuple[int, int]:
    """Forward passes over both images of each pair, as they are and mirrored."""
    count = len(values["tll"]) * tll.PAIRS * 2 * (1 + values["tll_features"]["flips"])
    return count, count


def gsp_lines(profile: Path, values: Values) -> Iterator[Line]:
    """MAP@R of each run, on its own fold, beside the rows of the tables that the profile claims."""
    for name, images in values["gsp"].items():
        folder = profile / "data/gsp_ensemble" / name
        metrics, settings = read_json(folder / "metrics.json"), read_json(folder / "settings.json")
        runs = Lists.model_validate({key: values[key] for key in Lists.model_fields}).gsp_runs
        claim = values["gsp_report"]["published"]
        losses = {run.loss for run in runs.values()}
        rows = gsp.claimed(gsp.Claim(**claim), Path(images).name, losses) if claim else []
        printed = {line["run"]: line["percent"] for line in gsp.compare(rows, runs, settings, metrics)}
        for run in runs:
            yield f"{run}, MAP@R", 100 * metrics[run]["separate"]["map_at_r"]["mean"], printed.get(run, math.nan)


def transfer_lines(profile: Path, values: Values) -> Iterator[Line]:
    """MAP@R, and MAP of unseen classes by what the attributes of seen ones predict, of two distances."""
    yield from gsp_lines(profile, values)
    for name in values["gsp"]:
        for run, found in read_json(profile / "data/gsp_ensemble" / name / "transfer.json").items():
            for measure in ("distance", "cosine"):
                yield f"{run}, MAP by {measure}", 100 * found[f"map_by_{measure}"], math.nan


def tll_lines(profile: Path, values: Values) -> Iterator[Line]:
    """aR@1 after the last step, and at the best step where there are several."""
    printed = {row["name"]: row for row in tll.rows()}
    for name, study in values["tll"].items():
        found = results.read(profile / "data/tll_adaptation" / name)
        for row in found.rows:
            percent = 100 * float(printed[study["extractor"]].get(row, "nan"))
            for at in ("last", "best"):
                if spread := found.spread(row, 1, at):
                    yield f"{row}, aR@1, {at} step", spread.mean, percent


def grappa_lines(profile: Path, values: Values) -> Iterator[Line]:
    """Both metrics of the encoder on each task, beside Table 2."""
    found = read_json(profile / "data/evaluation/encoder/metrics.json")
    printed = grappa.read()[2]["encoder"]
    for task in values["tasks"]:
        for metric in grappa.METRICS:
            yield f"encoder, {task}, {metric}", 100 * found[task][metric], printed[task][metric]


# Seconds are guesses: a step of a network as small as ResNet-20 waits for its launches, an image for its decoding.
STUDIES = {
    "gsp-fig3b": Study(
        "GSP, Fig. 3b: Cifar Collage and the distilled one; GAP and GSP beside Table 6",
        ("gsp-cifar-fig3b", "gsp-cifar-distilled"), "gsp_report", "training steps", 0.02, steps, gsp_lines,
    ),
    "gsp-table6": Study(
        "GSP, Table 6: all poolings on Cifar Collage",
        ("gsp-cifar-collage",), "gsp_report", "training steps", 0.02, steps, gsp_lines,
    ),
    "gsp-fig5": Study(
        "GSP, Fig. 5: attributes on CIFAR-10; the paper prints a figure and no number",
        ("gsp-cifar10",), "gsp_report", "training steps", 0.02, steps, transfer_lines,
    ),
    "tll-dino": Study(
        "TLL, Table 1: the row of DINO ViT-S/16",
        ("tll-obj-dino",), "tll_report", "images", 0.01, two_sides, tll_lines,
    ),
    "grappa-encoder": Study(
        "Grappa, Table 2: the row of the encoder on CUB",
        ("mrt-cub",), "evaluation@encoder", "images", 0.01, lambda _: (IMAGES["cub"], IMAGES["cub"]), grappa_lines,
    ),
}  # fmt: skip


def find(name: str) -> Study:
    """The study of this name; ValueError lists those known."""
    if name not in STUDIES:
        raise ValueError(f"unknown study {name!r}; known: {', '.join(STUDIES)}")
    return STUDIES[name]


def time(study: Study, values: list[Values]) -> str:
    """About how long it takes on one GPU: its work times a guess for each unit."""
    least, most = (sum(counts) for counts in zip(*(study.work(each) for each in values), strict=True))
    counts = [least, most][: 1 + (most > least)]
    taken = " to ".join(shown(count * study.seconds) for count in counts)
    return (
        f"{' to '.join(f'{count:,}' for count in counts)} {study.unit}, {taken} on one GPU: "
        f"by arithmetic, {study.seconds:g} s for each, not timed"
    )


def fetch(profile: Path, values: Values) -> None:
    """Brings the public data sets of a profile that are not here; ValueError where they have to be fetched by hand."""
    for name, task in values["tasks"].items():
        path = profile / values["paths"][name]
        if task["source"] in SOURCES and load.missing(task["source"], path):
            load.fetch(task["source"], path.resolve())
    for study in values["tll"].values():
        if not (profile / study["path"]).exists():
            raise ValueError(f"{(profile / study['path']).resolve()} is missing; it wants the images of {TLL_HOME}")


def beside(study: Study, profile: Path, values: Values) -> str:
    """A table of what was measured, printed, and the difference in points; a dash where nothing is printed."""
    text = [f"{profile.name:<44}{'ours':>8}{'printed':>9}{'differs':>9}"]
    for name, ours, printed in study.beside(profile, values):
        told = f"{'-':>9}{'-':>9}" if math.isnan(printed) else f"{printed:9.2f}{ours - printed:+9.2f}"
        text.append(f"{name:<44}{ours:8.2f}{told}")
    return "\n".join(text)
