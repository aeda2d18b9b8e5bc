"""What the whole graph gains over its encoder, for several seeds: the numbers in the README.

    python -m benchmarks.gain [--profile NAME] [--seeds 0 1 2]

Each seed runs the real graph in a temporary copy of the repository that shares its DVC cache, so stages that do not
depend on the seed are restored. Prints one JSON line per seed and model with the R-Precision of every task, in percent.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from polygrain.config import compose

ROOT = Path(__file__).parent.parent


def copy_repository(target: Path) -> None:
    """What git knows or would know, as it is now, with the cache of the original; the profiles without their graphs.

    DVC reads every graph that it finds, and those of profiles want a params.yaml, which git ignores.
    """
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0"):
        source = ROOT / name
        if name and source.exists() and not re.fullmatch(r"profiles/.*/dvc\.yaml", name):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name, follow_symlinks=False)
    subprocess.run(["git", "init", "-q"], cwd=target, check=True)
    (target / ".dvc" / "config.local").write_text(f"[cache]\n    dir = {ROOT / '.dvc' / 'cache'}\n")


def graph_folder(copy: Path, profile: str | None) -> Path:
    """The folder of the graph in the copy; a profile's values are composed, and from then on its own to change."""
    if profile is None:
        return copy
    folder = copy / "profiles" / profile
    if not (folder / "values.yaml").exists():
        shutil.copy2(ROOT / "profiles" / profile / "params.yaml", folder)  # written by hand, which git ignores
    compose.renew(folder)
    if not (folder / "dvc.yaml").exists():
        (folder / "dvc.yaml").symlink_to("../../dvc.yaml")
    (folder / "values.yaml").unlink(missing_ok=True)
    params = folder / "params.yaml"
    lines = params.read_text(encoding="utf-8").splitlines(keepends=True)
    params.write_text("".join(line for line in lines if not line.startswith("#")), encoding="utf-8")
    return folder


def run(folder: Path, seed: int) -> dict[str, dict[str, dict]]:
    """Sets the seed, reproduces, and returns the metrics of every model, as they are and whitened."""
    params = folder / "params.yaml"
    params.write_text(re.sub(r"^seed: \d+", f"seed: {seed}", params.read_text(), flags=re.M))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "DVC_NO_ANALYTICS": "1"}
    subprocess.run(["dvc", "repro", "-q", "report"], cwd=folder, env=environment, check=True)
    found = {}
    for result in sorted((folder / "data" / "evaluation").glob("*/")):
        for form, file in (("", "metrics.json"), (" whitened", "whitened.json")):
            found[result.name + form] = json.loads((result / file).read_text())
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", help="a folder below profiles/; without it the default data")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments = parser.parse_args()
    for seed in arguments.seeds:
        with tempfile.TemporaryDirectory() as temporary:
            copy_repository(Path(temporary))
            inside = graph_folder(Path(temporary), arguments.profile)
            for model, metrics in run(inside, seed).items():
                scores = {task: round(100 * values["r_precision"], 2) for task, values in metrics.items()}
                mean = round(sum(scores.values()) / len(scores), 2)
                print(json.dumps({"seed": seed, "model": model, "mean": mean} | scores), flush=True)
