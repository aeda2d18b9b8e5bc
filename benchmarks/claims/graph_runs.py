"""Runs of the graph in a copy of the repository that shares its DVC cache."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from ruamel.yaml import YAML

from benchmarks.claims.readers import READERS, Row
from benchmarks.claims.records import Experiment, values_of
from pipeline import process_group
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
    lines: list[str] = []
    if experiment.profile:
        compose.renew(folder)
    if experiment.command:
        command = [sys.executable, "-m", *shlex.split(experiment.command.format(seed=seed))]
        code = process_group.run(command, ROOT, lines.append)
    else:
        with (folder / "params.yaml").open("w", encoding="utf-8") as stream:
            YAML(typ="safe").dump(values_of(experiment.profile) | {"seed": seed}, stream)
        for target in experiment.target:  # what another run has left there would be read, too
            shutil.rmtree(folder / "data" / target.partition("@")[0], ignore_errors=True)
        command = ["dvc", "repro", "-q", *(f"dvc.yaml:{target}" for target in experiment.target)]
        code = process_group.run(command, folder)
    if code:
        print(*lines, sep="\n", file=sys.stderr)
        raise subprocess.CalledProcessError(code, command)
    (folder / "output.jsonl").write_text("\n".join(lines), encoding="utf-8")
    without = {"without": experiment.without} if experiment.without else {}
    return [*READERS[experiment.reader](folder, **without, **(experiment.values or {}))]
