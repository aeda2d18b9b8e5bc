"""Four heads with PCR and PTB against one, same budget, several seeds: what a probe gains at the default's toy size.

    python -m benchmarks.heads IMAGES [--seeds 0 1 2]

IMAGES is `data/images` of the default graph; everything else is params.yaml's. Prints one JSON line per seed and run
with linear probe and zero-shot R-Precision of every task in percent, then mean and standard deviation of the gains.
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

from stages import mpcl_encoder, mpcl_probe
from stages.core.encoder.model import save
from stages.core.mpcl.pretraining.run import HeadSettings, Plan, pretrain
from stages.core.runner.command import read_params
from stages.core.runner.lists import Pretraining
from stages.core.store.collection import open_pixels, read_tables

COMMON = {"framework": "moco_v3", "projectors": "shared", "variant": "plain", "start": "random", "path": "-"}
RUNS = {
    "M = 1": Pretraining(**COMMON, heads=1, contrast=0.0, balance="none"),
    "M = 4, PCR, PTB": Pretraining(**COMMON, heads=4, contrast=0.01, balance="neutral"),
    "M = 4, PCR, PTB as printed": Pretraining(**COMMON, heads=4, contrast=0.01, balance="literal"),
}


def run(images: Path, chosen: Pretraining, seed: int, folder: Path) -> dict[str, dict[str, float]]:
    """{task: {linear, r_precision}} of one run."""
    values = read_params(Path("params.yaml"))
    params = mpcl_encoder.Params.model_validate(values["mpcl_encoder"])
    probe = mpcl_probe.Params.model_validate(values["mpcl_probe"] | {"fine_tuning": None})
    tasks = list(values["tasks"])
    pixels, collection = open_pixels(images, tasks), read_tables(images, tasks)
    encoder = mpcl_encoder.build_encoder(Path("-"), chosen, params, pixels.shape[1], seed)
    reading, kind = chosen.projectors, chosen.variant
    heads = HeadSettings(chosen.heads, reading, kind, chosen.contrast, chosen.balance, params.epsilon, 0.0, 0.0)
    plan = Plan(params.epochs, params.batch, params.warmup, params.least_spread, tuple(params.views))
    pretrain(encoder, pixels, collection.train, heads, params.framework(chosen.framework), plan, seed, folder / "work")
    save(encoder, folder)
    found = {task: mpcl_probe.probe_task(folder, pixels, collection, task, probe, 0, folder / "p") for task in tasks}
    return {task: {name: 100 * values[name] for name in ("linear", "r_precision")} for task, values in found.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments = parser.parse_args()
    means: dict[str, dict[str, list[float]]] = {name: {"linear": [], "r_precision": []} for name in RUNS}
    for seed in arguments.seeds:
        for name, chosen in RUNS.items():
            with tempfile.TemporaryDirectory() as temporary:
                found = run(arguments.images, chosen, seed, Path(temporary))
            for measure, values in means[name].items():
                values.append(float(np.mean([scores[measure] for scores in found.values()])))
            row = {"seed": seed, "run": name} | {
                measure: round(values[-1], 2) for measure, values in means[name].items()
            }
            print(json.dumps(row | {t: {m: round(v, 1) for m, v in s.items()} for t, s in found.items()}), flush=True)
    for name in list(RUNS)[1:]:
        for measure in ("linear", "r_precision"):
            gains = np.subtract(means[name][measure], means["M = 1"][measure])
            spread = round(float(gains.std(ddof=1)), 2) if len(gains) > 1 else None
            row = {"claim": f"{name} less M = 1, {measure}", "mean": round(float(gains.mean()), 2), "std": spread}
            print(json.dumps(row | {"seeds": [round(float(g), 2) for g in gains]}), flush=True)
