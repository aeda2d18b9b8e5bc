"""The gain of the whole graph over its encoder, for several seeds: the numbers in the README.

    python -m benchmarks.gain [--profile NAME] [--seeds 0 1 2] [--rows] [--models NAME ...]

Each seed runs the real graph in a temporary copy of the repository that shares its DVC cache. Prints one line of JSON
for each seed and model, with the R-Precision of each task in percent. `--rows` adds the peers of the paper's Tables 2,
4 and 5: baselines without clusters, and models that train on the true labels. `--models` runs what these need, alone.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ruamel.yaml import YAML

from polygrain.config import compose

ROOT = Path(__file__).parent.parent
ROWS = ("fusions", "baselines", "supervised_models", "models")


def copy_repository(target: Path) -> None:
    """Copy what git knows or would know, with the cache of the original; of profiles not their dvc.yaml."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0"):
        source = ROOT / name
        if name and source.exists() and not re.fullmatch(r"profiles/.*/dvc\.yaml", name):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name, follow_symlinks=False)
    subprocess.run(["git", "init", "-q"], cwd=target, check=True)
    (target / ".dvc" / "config.local").write_text(f"[cache]\n    dir = {ROOT / '.dvc' / 'cache'}\n")
    if (ROOT / "data/raw").exists():  # images of one's own, which git does not know
        (target / "data/raw").symlink_to(ROOT / "data/raw")


def graph_folder(copy: Path, profile: str | None) -> Path:
    """Return the folder of the graph in the copy, with its params.yaml composed, free to be changed."""
    if profile is None:
        return copy
    folder = copy / "profiles" / profile
    if compose.source(folder) is None:
        shutil.copy2(ROOT / "profiles" / profile / "params.yaml", folder)  # written by hand, which git ignores
    compose.renew(folder)
    (folder / "values.yaml").unlink(missing_ok=True)
    return folder


def read_values(params: Path) -> dict:
    return YAML(typ="safe").load(params.read_text(encoding="utf-8"))


def write_values(params: Path, values: dict) -> None:
    with params.open("w", encoding="utf-8") as stream:
        YAML(typ="safe").dump(values, stream)


def add_rows(values: dict) -> dict:
    """The values with the lists and sections of the profile `grappa-rows`."""
    rows = compose.compose(ROOT / "profiles/grappa-rows")
    sections = {name: rows[name] for name in ("baseline", "supervised_model")}
    return values | {title: values[title] | rows[title] for title in ROWS} | sections


def reproduce(folder: Path, target: str) -> float:
    """Run the graph up to a stage; returns the seconds it took."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "DVC_NO_ANALYTICS": "1"}
    start = time.monotonic()
    subprocess.run(["dvc", "repro", "-q", target], cwd=folder, env=environment, check=True)
    return time.monotonic() - start


def scores(folder: Path) -> dict[str, dict[str, float]]:
    """{model, with "whitened" behind its name where it is: {task: R-Precision in percent}}."""
    result = {}
    for model in sorted((folder / "data" / "evaluation").glob("*/")):
        for form, file in (("", "metrics.json"), (" whitened", "whitened.json")):
            metrics = json.loads((model / file).read_text())
            result[model.name + form] = {task: 100 * values["r_precision"] for task, values in metrics.items()}
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", help="a folder below profiles/; without it the default data")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rows", action="store_true", help="the peers of the paper, too")
    parser.add_argument("--models", nargs="+", help="rows of the results table; without it all")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        copy_repository(Path(temporary))
        graph = graph_folder(Path(temporary), arguments.profile)
        values = read_values(graph / "params.yaml")
        values = add_rows(values) if arguments.rows else values
        for seed in arguments.seeds:
            write_values(graph / "params.yaml", values | {"seed": seed})
            for target in [f"evaluation@{name}" for name in arguments.models or []] or ["evaluation"]:
                reproduce(graph, f"dvc.yaml:{target}")
            for model, by_task in scores(graph).items():
                mean = sum(by_task.values()) / len(by_task)
                row = {"mean": mean} | by_task
                print(json.dumps({"seed": seed, "model": model} | {k: round(v, 2) for k, v in row.items()}), flush=True)
