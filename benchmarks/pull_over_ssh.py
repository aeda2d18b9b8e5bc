"""The default data pushed over ssh and pulled by a second clone: no stage runs there, and the bytes are the same.

    python -m benchmarks.pull_over_ssh

The repository must be up to date (`make repro`), with dvc.lock committed or not; needs openssh-server.
"""

import filecmp
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import seconds
from pipeline import graph, share
from tests.pipeline import sshd, toy

ROOT = toy.ROOT


def clone(folder: Path) -> None:
    """The repository as it stands, without its data: what git would bring, and the dvc.lock of now."""
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
    shutil.copy2(ROOT / "dvc.lock", folder / "dvc.lock")


def differing(one: Path, other: Path) -> list[str]:
    """Files that only one of the folders has, or that differ by a byte."""
    names = {str(path.relative_to(root)) for root in (one, other) for path in root.rglob("*") if path.is_file()}
    _, wrong, missing = filecmp.cmpfiles(one, other, sorted(names), shallow=False)
    return wrong + missing


if __name__ == "__main__":
    stages = graph.load(ROOT)
    if graph.to_do(stages):
        sys.exit("error: the default graph is not up to date: `make repro` first")
    with tempfile.TemporaryDirectory() as temporary, sshd.served(Path(temporary)) as (url, key):
        owner, second = Path(temporary) / "owner", Path(temporary) / "second"
        for folder in (owner, second):
            clone(folder)
            share.use_remote(folder, url)
            for name, value in {"keyfile": key, "allow_agent": "false"}.items():
                toy.run(folder, "dvc", "remote", "modify", "--local", share.NAME, name, value)
        # The owner is the repository itself with another remote: its cache, its results.
        toy.run(owner, "dvc", "cache", "dir", "--local", str(ROOT / ".dvc" / "cache"))
        toy.run(owner, "dvc", "checkout", "-q")
        pushed = seconds(lambda: share.push(owner, None))
        pulled = seconds(lambda: share.fetch(second, None))
        said = toy.run(second, "dvc", "repro", "dvc.yaml")
        ran = [line for line in said.splitlines() if line.startswith("Running stage")]
        wrong = [
            f"{out.relative_to(owner)}/{name}"
            for stage in graph.load(owner)
            for out in stage.outs
            for name in differing(out, second / out.relative_to(owner))
        ]
        row = {"claim": "pull by a second clone over ssh, default data", "stages": len(stages), "ran": len(ran)}
        print(json.dumps(row | {"differing_files": len(wrong), "push_s": pushed, "pull_s": pulled}))
    sys.exit(bool(ran or wrong))
