"""A small repository whose stages are shell commands: one source, some first, some second after those, one last."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from pipeline import server

ROOT = Path(__file__).resolve().parents[2]
GRAPH = """\
vars: [params.json]
stages:
  source:
    desc: what all read
    cmd: mkdir -p data/source; echo source > data/source/text; ${extra.source}
    params: [{params.json: [extra.source]}]
    outs: [data/source]
  first:
    foreach: ${first}
    do:
      cmd: >-
        mkdir -p data/first/${key}; cat data/source/text > data/first/${key}/text;
        echo ${key} >> data/first/${key}/text; ${extra.first}
      deps: [data/source]
      outs: ["data/first/${key}"]
      meta: {gpu: 1}
  second:
    foreach: ${second}
    do:
      cmd: >-
        mkdir -p data/second/${key}; echo "epoch 1/2: loss 0.5"; echo "epoch 2/2: loss 0.1";
        cat data/first/${item}/text > data/second/${key}/text; ${extra.second}
      deps: ["data/first/${item}"]
      outs: ["data/second/${key}"]
  last:
    cmd: >-
      mkdir -p data/last; cat data/second/*/text > data/last/text; printf '# Results' > data/last/table.md;
      ${extra.last}
    deps: [data/second]
    params: [{params.json: [second]}]
    outs: [data/last]
"""
# Trains 8 epochs, has a checkpoint after each, continues from it, and ends with its dvc as a stage of the project does.
TRAIN = """\
import ctypes, pathlib, signal, sys, time
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
out, work = pathlib.Path(sys.argv[1]), pathlib.Path(".work") / sys.argv[1]
work.mkdir(parents=True, exist_ok=True)
state = work / "checkpoint"
done = state.read_text().split() if state.exists() else []
if done:
    print(f"continues after epoch {len(done)}", flush=True)
for epoch in range(len(done), 8):
    time.sleep(SECONDS)
    done.append(str(epoch * epoch))
    fresh = work / "fresh"
    fresh.write_text(" ".join(done))
    fresh.replace(state)
out.mkdir(parents=True, exist_ok=True)
(out / "text").write_text(" ".join(done) + "\\n")
state.unlink()
"""
TRAINING = """\
stages:
  source: {cmd: mkdir -p data/source && echo 1 > data/source/text, deps: [train.py], outs: [data/source]}
  train:
    foreach: [a, b]
    do:
      cmd: exec python3 train.py data/train/${item}
      deps: [data/source, train.py]
      outs: ["data/train/${item}"]
      meta: {gpu: 1}
  last:
    cmd: mkdir -p data/last && cat data/train/*/text > data/last/text
    deps: [data/train]
    outs: [data/last]
"""
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")} | {
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "PYTHONPATH": str(ROOT),
    "DVC_NO_ANALYTICS": "1",
    **{f"GIT_{who}_{what}": "toy@127.0.0.1" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


def make(folder: Path, first: int = 2, second: int = 4, then: dict[str, str] | None = None) -> Path:
    """The repository, committed, nothing run; `then` adds a command to every stage of a name."""
    names = [f"f{i}" for i in range(first)]
    params = {
        "first": dict.fromkeys(names, 1),
        "second": {f"s{i:02d}": names[i % first] for i in range(second)},
        "extra": {name: "true" for name in ("source", "first", "second", "last")} | (then or {}),
    }
    return found(folder, {"params.json": json.dumps(params, indent=1), "dvc.yaml": GRAPH})


def make_training(folder: Path, seconds: float = 0.25) -> Path:
    """A repository with two stages that train 8 epochs of so many seconds."""
    return found(folder, {"train.py": TRAIN.replace("SECONDS", str(seconds)), "dvc.yaml": TRAINING})


def found(folder: Path, files: dict[str, str]) -> Path:
    """A repository of these files, committed."""
    folder.mkdir(parents=True)
    run(folder, "git", "init", "-q", "-b", "main")
    (folder / ".dvc").mkdir()
    ignored = {".dvc/.gitignore": "/config.local\n/tmp\n/site\n/cache\n", ".gitignore": "/data\n/.prefect\n/.work\n"}
    config = "[core]\n    analytics = false\n    check_update = false\n    autostage = false\n"
    for name, text in (files | ignored | {".dvc/config": config, ".dvcignore": ".prefect\n.work\n"}).items():
        (folder / name).write_text(text)
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    run(folder, "git", "add", "-A")
    run(folder, "git", "commit", "-q", "--allow-empty", "-m", "toy")


def clone(owner: Path, name: str) -> Path:
    """What a colleague has after `git clone`: no data, no cache, no remote."""
    run(owner.parent, "git", "clone", "-q", str(owner), name)
    return owner.parent / name


def at(pages: server.Server) -> dict[str, str]:
    """The variables by which a command speaks with this server."""
    return {"PREFECT_API_URL": pages.api, "PREFECT_API_AUTH_STRING": pages.auth}


def run(folder: Path, *command: str, check: bool = True, timeout: float = 240, **environment: str) -> str:
    """What the command wrote, in the toy's environment; its output is the message if it fails."""
    done = subprocess.run(
        command, cwd=folder, env=ENVIRONMENT | environment, capture_output=True, text=True, timeout=timeout
    )
    output = done.stdout + done.stderr
    assert not check or done.returncode == 0, f"{command} ended with {done.returncode}:\n{output[-4000:]}"
    return output


def polygrain(folder: Path, *arguments: str, **options) -> str:
    return run(folder, sys.executable, "-m", "polygrain", *arguments, **options)


def start(folder: Path, *arguments: str, log: Path, **environment: str) -> subprocess.Popen:
    """The command under way, which takes Ctrl-C even where the tests run in the background of a shell."""
    command = [sys.executable, "-m", "polygrain", *arguments]
    options = {"cwd": folder, "env": ENVIRONMENT | environment}
    options["preexec_fn"] = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    with log.open("w") as stream:
        return subprocess.Popen(command, stdout=stream, stderr=stream, **options)


def texts(folder: Path) -> dict[str, bytes]:
    """Every result, byte by byte."""
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.glob("data/**/*")) if path.is_file()
    }


def trained() -> dict[str, bytes]:
    """What an undisturbed run of `make_training` writes."""
    text = b"0 1 4 9 16 25 36 49\n"
    return {
        "data/last/text": 2 * text,
        "data/source/text": b"1\n",
        "data/train/a/text": text,
        "data/train/b/text": text,
    }


def up_to_date(folder: Path, *stages: str) -> bool:
    return "up to date" in run(folder, "dvc", "status", *stages)


def marked(mark: str) -> list[psutil.Process]:
    """Every process that was started, through whatever children, with this mark as TOY_MARK in its environment."""
    marked = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TOY_MARK") == mark and process.status() != psutil.STATUS_ZOMBIE:
                marked.append(process)
        except psutil.Error:
            continue
    return marked


def survivors(mark: str, seconds: float = 20) -> list[str]:
    """What is left of the marked processes after so many seconds."""
    deadline = time.monotonic() + seconds
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return [" ".join(process.cmdline()) for process in left]


def wait_for_epoch(folder: Path, process: subprocess.Popen) -> None:
    """Until a stage of `make_training` has finished an epoch."""
    deadline = time.monotonic() + 120
    while not list(folder.glob(".work/data/train/*/checkpoint")):
        assert process.poll() is None and time.monotonic() < deadline, "the run ended before it could be killed"
        time.sleep(0.02)
