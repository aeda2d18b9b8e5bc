"""A small repository whose stages are shell commands: one source, some first, some second after those, one last."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import secret
from polygrain.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
GRAPH = """\
vars: [params.json]
stages:
  source:
    desc: what all read
    cmd: sleep ${seconds}; mkdir -p data/source; echo source > data/source/text; ${extra.source}
    params: [{params.json: [seconds, extra.source]}]
    outs: [data/source]
  first:
    foreach: ${first}
    do:
      desc: one of several
      cmd: >-
        sleep ${seconds}; mkdir -p data/first/${key}; cat data/source/text > data/first/${key}/text;
        echo ${key} >> data/first/${key}/text; ${extra.first}
      deps: [data/source]
      outs: ["data/first/${key}"]
      meta: {gpu: 1}
  second:
    foreach: ${second}
    do:
      cmd: >-
        sleep ${seconds}; mkdir -p data/second/${key}; echo "epoch 1/2: loss 0.5"; echo "epoch 2/2: loss 0.1";
        cat data/first/${item}/text > data/second/${key}/text; ${extra.second}
      deps: ["data/first/${item}"]
      outs: ["data/second/${key}"]
  last:
    cmd: >-
      sleep ${seconds}; mkdir -p data/last; cat data/second/*/text > data/last/text;
      printf '# Results\\n\\n| a |\\n|---|\\n| 1 |\\n' > data/last/table.md; ${extra.last}
    deps: [data/second]
    params: [{params.json: [second]}]
    outs: [data/last]
"""
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")} | {
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "PYTHONPATH": str(ROOT),
    "DVC_NO_ANALYTICS": "1",
    "GIT_AUTHOR_NAME": "toy",
    "GIT_AUTHOR_EMAIL": "toy@127.0.0.1",
    "GIT_COMMITTER_NAME": "toy",
    "GIT_COMMITTER_EMAIL": "toy@127.0.0.1",
}


def let_in(root: Path) -> None:
    """Lets toys speak with the server that was started in this folder: each is a clone with a secret of its own."""
    ENVIRONMENT[secret.VARIABLE] = secret.of(root)


def make(folder: Path, first: int = 2, second: int = 4, seconds: float = 0, then: dict[str, str] | None = None) -> Path:
    """The repository, committed, nothing run; `then` adds a command to every stage of a name."""
    folder.mkdir(parents=True)
    run(folder, "git", "init", "-q", "-b", "main")
    (folder / ".dvc").mkdir()
    (folder / ".dvc" / ".gitignore").write_text("/config.local\n/tmp\n/cache\n")
    (folder / ".dvc" / "config").write_text("[core]\n    analytics = false\n    autostage = false\n")
    names = [f"f{i}" for i in range(first)]
    params = {
        "seconds": seconds,
        "first": dict.fromkeys(names, 1),
        "second": {f"s{i:02d}": names[i % first] for i in range(second)},
        "extra": {name: "true" for name in ("source", "first", "second", "last")} | (then or {}),
    }
    (folder / "params.json").write_text(json.dumps(params, indent=1))
    (folder / "dvc.yaml").write_text(GRAPH)
    (folder / ".gitignore").write_text("/data\n/.prefect\n*.partial\n")
    (folder / ".dvcignore").write_text(".prefect\n*.partial\n")
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    run(folder, "git", "add", "-A")
    run(folder, "git", "commit", "-q", "--allow-empty", "-m", "toy")


def run(folder: Path, *command: str, check: bool = True, timeout: float = 240, **environment: str) -> str:
    """What the command wrote, in the toy's environment; its output is the message if it fails."""
    done = subprocess.run(
        command, cwd=folder, env=ENVIRONMENT | environment, capture_output=True, text=True, timeout=timeout
    )
    said = done.stdout + done.stderr
    assert not check or done.returncode == 0, f"{command} ended with {done.returncode}:\n{said[-4000:]}"
    return said


def refusal(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """What a command says before it ends, run here and now in the folder, since a process of its own starts slowly."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["polygrain", command, *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return str(ended.value)


def flow(folder: Path, *arguments: str, **options) -> str:
    return run(folder, sys.executable, "-m", "polygrain", "flow", *arguments, **options)


def texts(folder: Path) -> dict[str, bytes]:
    """Every result, byte by byte."""
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.glob("data/**/*")) if path.is_file()
    }


def up_to_date(folder: Path) -> bool:
    return "up to date" in run(folder, "dvc", "status")
