"""Runs of the graph in a copy of the repository that shares its DVC cache."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from ruamel.yaml import YAML

from benchmarks.claims.readers import READERS, Row
from benchmarks.claims.records import Experiment, values_of
from polygrain.config import compose
from polygrain.store.imports import ROOT


def copy_repository(target: Path) -> None:
    """Copy what git knows or would know, with the cache of the original; of profiles not their dvc.yaml."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.check_output(listed, cwd=ROOT, text=True).split("\0"):
        source = ROOT / name
        if name and source.exists() and not re.fullmatch(r"profiles/.*/dvc\.yaml", name):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name, follow_symlinks=False)
    subprocess.run(["git", "init", "-q"], cwd=target, check=True)
    (target / ".dvc" / "config.local").write_text(f"[cache]\n    dir = {ROOT / '.dvc' / 'cache'}\n")
    if (ROOT / "data/raw").exists():  # images of one's own, which git does not know
        (target / "data/raw").symlink_to(ROOT / "data/raw")


def measure(experiment: Experiment, seed: int, copy: Path) -> list[Row]:
    """The numbers of one run; CalledProcessError where it fails."""
    folder = copy / "profiles" / experiment.profile if experiment.profile else copy
    if experiment.profile:
        compose.renew(folder)
    if experiment.command:
        command = [sys.executable, "-m", *shlex.split(experiment.command.format(seed=seed))]
        (folder / "output.jsonl").write_bytes(subprocess.check_output(command, cwd=ROOT))
    else:
        with (folder / "params.yaml").open("w", encoding="utf-8") as stream:
            YAML(typ="safe").dump(values_of(experiment.profile) | {"seed": seed}, stream)
        for target in experiment.target:  # what another run has left there would be read, too
            shutil.rmtree(folder / "data" / target.partition("@")[0], ignore_errors=True)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = os.environ | {"PATH": path, "DVC_NO_ANALYTICS": "1"}
        command = ["dvc", "repro", "-q", *(f"dvc.yaml:{target}" for target in experiment.target)]
        subprocess.run(command, cwd=folder, env=environment, check=True)
    without = {"without": experiment.without} if experiment.without else {}
    return [*READERS[experiment.reader](folder, **without, **(experiment.values or {}))]
