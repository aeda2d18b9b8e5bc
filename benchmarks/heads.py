"""Pretraining at the default's toy size, several seeds: the untrained start, one head, and four heads with PCR and PTB.

    python -m benchmarks.heads IMAGES [--seeds 0 1 2]

IMAGES is `data/images` of the default graph; everything else is params.yaml's, the runs `heads1` and `heads4` too. One
JSON line per seed and run says the mean over tasks of linear probe and zero-shot R-Precision (percent), uniformity and
effective rank, and both scores of every task; then come the table of the seeds, and the gains with their mean and
standard deviation. The exit code says whether each trained run is above its start in every seed, by both scores.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from polygrain.config.lists import Pretraining
from polygrain.encoder.model import save
from polygrain.mpcl.pretraining.run import HeadSettings, Plan, pretrain
from polygrain.runner.command import read_params
from polygrain.store.collection import open_pixels, read_tables
from stages import mpcl_encoder, mpcl_probe

SCORES = {"linear": "linear probe, %", "r_precision": "zero-shot R-Precision, %"}
SPREAD = {"uniformity": "uniformity", "effective_rank": "effective rank"}
START, ONE, FOUR, PRINTED = "start", "one head", "four heads", "four heads, PTB as printed"
Scores = dict[str, dict[str, float]]


def runs(listed: dict[str, dict]) -> dict[str, Pretraining]:
    """The default's two runs, and four heads with the balance as the paper prints it."""
    chosen = {ONE: listed["heads1"], FOUR: listed["heads4"], PRINTED: listed["heads4"] | {"balance": "literal"}}
    return {name: Pretraining.model_validate(values) for name, values in chosen.items()}


def train(images: Path, values: dict, chosen: Pretraining | None, seed: int, folder: Path) -> None:
    """Writes an encoder into a folder: after a run, or at the start of every run (None)."""
    params = mpcl_encoder.Params.model_validate(values["mpcl_encoder"])
    tasks = list(values["tasks"])
    pixels, rows = open_pixels(images, tasks), mpcl_encoder.choose_rows(read_tables(images, tasks), params.images)
    drawn = chosen or runs(values["mpcl"])[ONE]
    encoder = mpcl_encoder.build_encoder(Path(drawn.path), drawn, params, pixels.shape[1], seed)
    if chosen is not None:
        reading, kind = chosen.projectors, chosen.variant
        heads = HeadSettings(chosen.heads, reading, kind, chosen.contrast, chosen.balance, params.epsilon, 0.0, 0.0)
        plan = Plan(params.epochs, params.batch, params.warmup, params.least_spread, tuple(params.views))
        pretrain(encoder, pixels, rows, heads, params.framework(chosen.framework), plan, seed, folder / "work")
    save(encoder, folder)


def measure(images: Path, values: dict, folder: Path) -> Scores:
    """{task: {linear, r_precision, uniformity, effective_rank}} of an encoder's folder, the first two in percent."""
    probe = mpcl_probe.Params.model_validate(values["mpcl_probe"] | {"fine_tuning": None})
    tasks = list(values["tasks"])
    pixels, collection = open_pixels(images, tasks), read_tables(images, tasks)
    measures = {}
    for task in tasks:
        scores = mpcl_probe.probe_task(folder, pixels, collection, task, probe, 0, folder / "p", listed={})
        measures[task] = {name: (100 if name in SCORES else 1) * scores[name] for name in (*SCORES, *SPREAD)}
    return measures


def table(means: dict[str, list[dict[str, float]]], seeds: list[int]) -> list[str]:
    """Lines of Markdown: each run, each measure of every seed."""
    lines = [f"| seeds {', '.join(map(str, seeds))} | {' | '.join([*SCORES.values(), *SPREAD.values()])} |"]
    lines.append("|---|" + "---:|" * len(SCORES | SPREAD))
    for name, by_seed in means.items():
        cells = [
            ", ".join(f"{scores[measure]:.{1 if measure in SCORES else 2}f}" for scores in by_seed)
            for measure in (*SCORES, *SPREAD)
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def gains(means: dict[str, list[dict[str, float]]], name: str, against: str, score: str) -> np.ndarray:
    """What one run has more than another, in points, a seed each."""
    return np.array([a[score] - b[score] for a, b in zip(means[name], means[against], strict=True)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments = parser.parse_args()
    values = read_params(Path("params.yaml"))
    trained = runs(values["mpcl"])
    means: dict[str, list[dict[str, float]]] = {name: [] for name in (START, *trained)}
    for seed in arguments.seeds:
        for name in means:
            with tempfile.TemporaryDirectory() as temporary:
                train(arguments.images, values, trained.get(name), seed, Path(temporary))
                found = measure(arguments.images, values, Path(temporary))
            mean = {key: float(np.mean([scores[key] for scores in found.values()])) for key in (*SCORES, *SPREAD)}
            means[name].append(mean)
            row = {"seed": seed, "run": name} | {key: round(value, 2) for key, value in mean.items()}
            row |= {task: {key: round(scores[key], 1) for key in SCORES} for task, scores in found.items()}
            print(json.dumps(row), flush=True)
    print("\n".join(table(means, arguments.seeds)))
    behind = []
    for name, against in [*((name, START) for name in trained), *((name, ONE) for name in trained if name != ONE)]:
        for score in SCORES:
            more = gains(means, name, against, score)
            row = {"claim": f"{name} less {against}, {score}", "mean": round(float(more.mean()), 2)}
            row["std"] = round(float(more.std(ddof=1)), 2) if len(more) > 1 else None
            print(json.dumps(row | {"seeds": more.round(2).tolist()}), flush=True)
            if against == START and more.min() <= 0:
                behind.append(row["claim"])
    sys.exit(f"not above the start in every seed: {', '.join(behind)}" if behind else 0)
