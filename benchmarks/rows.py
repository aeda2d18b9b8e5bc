"""The rows of Tables 2, 4 and 5 on the default data or a profile, over several seeds: what each gains over the encoder.

    python -m benchmarks.rows [--profile NAME] [--seeds 0 1 2] [--models tldr one_set ...]

Adds the baselines, the static and the supervised fusion, and the models trained on the true labels of all tasks to the
lists of a temporary copy of the repository that shares its DVC cache. Not the oracle, which is no model, nor Table 3's
models of single tasks (unless the profile lists them). All are measured on every task of the profile. Prints one JSON
line per model: the mean over tasks, its difference to the encoder, each with the standard deviation over the seeds, and
the differences of the tasks.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from ruamel.yaml import YAML

from benchmarks.gain import copy_repository, graph_folder

MORE = {
    "fusions": {"static": "knn_graph", "supervised": "images"},
    "baselines": {"one_set": "features", "many_sets": "features", "tldr": "knn_graph", "linear": "pseudo_labels"},
    "supervised_models": {f"all-{how}": {"on": "all", "how": how} for how in ("full", "one", "many")},
}
STAGES = {"fusions": "fusion", "baselines": "baseline", "supervised_models": "supervised_model"}


def add_rows(params: Path) -> None:
    """Puts the missing rows into the lists of a params.yaml."""
    yaml = YAML(typ="safe")
    values = yaml.load(params.read_text(encoding="utf-8"))
    for title, items in MORE.items():
        values[title] |= items
        values["models"] |= {name: f"{STAGES[title]}/{name}" for name in items}
    with params.open("w", encoding="utf-8") as stream:
        yaml.dump(values, stream)


def evaluate(folder: Path, seed: int, models: list[str]) -> dict[str, dict[str, float]]:
    """{model: {task: R-Precision in percent}} for one seed; no models: all."""
    params = folder / "params.yaml"
    params.write_text(re.sub(r"^seed: \d+", f"seed: {seed}", params.read_text(), flags=re.M))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "DVC_NO_ANALYTICS": "1"}
    targets = [f"dvc.yaml:evaluation@{name}" for name in ["encoder", *models]] if models else ["dvc.yaml:evaluation"]
    subprocess.run(["dvc", "repro", "-q", *targets], cwd=folder, env=environment, check=True)
    found = {}
    for result in sorted((folder / "data/evaluation").glob("*/")):
        for form, file in (("", "metrics.json"), (" whitened", "whitened.json")):
            values = json.loads((result / file).read_text())
            found[result.name + form] = {task: 100 * row["r_precision"] for task, row in values.items()}
    return found


def spread(values: list[float]) -> list[float]:
    return [round(statistics.fmean(values), 2), round(statistics.stdev(values), 2) if len(values) > 1 else 0.0]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", help="a folder below profiles/; without it the default data")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--models", nargs="+", default=[], help="these rows only, with the encoder")
    arguments = parser.parse_args()
    runs = []
    with tempfile.TemporaryDirectory() as temporary:
        copy_repository(Path(temporary))
        inside = graph_folder(Path(temporary), arguments.profile)
        add_rows(inside / "params.yaml")
        runs = [evaluate(inside, seed, arguments.models) for seed in arguments.seeds]
    for model in runs[0]:
        means = [statistics.fmean(run[model].values()) for run in runs]
        gains = [mean - statistics.fmean(run["encoder"].values()) for mean, run in zip(means, runs, strict=True)]
        tasks = {t: spread([run[model][t] - run["encoder"][t] for run in runs]) for t in runs[0][model]}
        row = {"model": model, "mean, sd": spread(means), "less encoder, sd": spread(gains), "seeds": len(runs)}
        print(json.dumps(row | tasks), flush=True)
