"""One case of dying: a flow, its dvc or its stage is sent a signal, and what is left is counted."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from functools import partial
from pathlib import Path

import psutil

from pipeline import guard, slots
from tests.pipeline import toy

TRAIN = """\
import pathlib, sys, time
out, work = pathlib.Path(sys.argv[1]), pathlib.Path(".work") / sys.argv[1]
work.mkdir(parents=True, exist_ok=True)
state = work / "checkpoint"
done = state.read_text().split() if state.exists() else []
if done:
    print(f"continues after epoch {len(done)} ({state})", flush=True)
for epoch in range(len(done), 8):
    time.sleep(SECONDS)
    done.append(str(epoch * epoch))
    fresh = work / "fresh"
    fresh.write_text(" ".join(done))
    fresh.replace(state)
    print(f"epoch {epoch + 1}/8: loss {1 / (epoch + 1):.3f}", flush=True)
out.mkdir(parents=True, exist_ok=True)
(out / "text").write_text(" ".join(done) + "\\n")
state.unlink()
"""
GRAPH = """\
stages:
  source: {cmd: mkdir -p data/source && echo 1 > data/source/text, deps: [train.py], outs: [data/source]}
  train:
    foreach: [a, b]
    do:
      cmd: python3 train.py data/train/${item}
      deps: [data/source, train.py]
      outs: ["data/train/${item}"]
      meta: {gpu: 1}
  last:
    cmd: mkdir -p data/last && cat data/train/*/text > data/last/text
    deps: [data/train]
    outs: [data/last]
"""


def make(folder: Path, seconds: float = 0.25) -> Path:
    """The toy with two stages that train 8 epochs of so many seconds, checkpoint after every one and continue."""
    toy.make(folder)
    (folder / "train.py").write_text(TRAIN.replace("SECONDS", str(seconds)))
    (folder / "dvc.yaml").write_text(GRAPH)
    (folder / ".gitignore").write_text("/data\n/.prefect\n/.work\n*.partial\n")
    (folder / ".dvcignore").write_text(".prefect\n.work\n*.partial\n")
    toy.commit(folder)
    return folder


def marked(mark: str) -> list[psutil.Process]:
    """Every process that was started, through whatever children, with this mark in its environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("TOY_MARK") == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def role_of(process: psutil.Process) -> str:
    """What a marked process is in a run; empty for what is none of these."""
    words = process.cmdline()
    if process.name() in ("dvc", "make"):
        return process.name()
    if words[1:3] == ["-m", "dvc"]:
        return "dvc"
    if words[1:2] == ["train.py"]:
        return "stage"
    if "pipeline.guard" in words or guard.__file__ in words:
        return "guard"
    roles = {("polygrain", "run"): "guard", ("polygrain", "flow"): "flow"}
    if (role := roles.get(tuple(words[2:4]))) is not None:
        return role
    modules = {"pipeline.gate": "server", "pipeline.forks": "forks"}
    return next((role for module, role in modules.items() if module in words), "")


def find(mark: str, role: str) -> psutil.Process | None:
    """A marked process of this role, if one is running."""
    for process in marked(mark):
        with contextlib.suppress(psutil.Error):
            if role_of(process) == role:
                return process
    return None


def make_command(folder: Path, target: str) -> list[str]:
    """What runs the project's own Makefile on this toy, with this installation."""
    lock = folder / "requirements.lock"
    lock.touch()
    os.utime(lock, (0, 0))
    text = (toy.ROOT / "Makefile").read_text()
    for own, here in (
        ("override VENV := $(CURDIR)/.venv", f"override VENV := {toy.ROOT / '.venv'}"),
        ("override READY := .venv/ready", f"override READY := {toy.ROOT / '.venv/ready'}"),
    ):
        assert text.count(own) == 1, own
        text = text.replace(own, here)
    file = folder.parent / f"{folder.name}.mk"
    file.write_text(text)
    return ["make", "-f", str(file), target]


def wait_for_epoch(folder: Path, process: subprocess.Popen) -> None:
    """Until a stage has finished an epoch."""
    deadline = time.monotonic() + 120
    while not list(folder.glob(".work/data/train/*/checkpoint")):
        assert process.poll() is None and time.monotonic() < deadline, "the flow ended before it could be killed"
        time.sleep(0.02)


def case(folder: Path, number: signal.Signals, target: str, api: str) -> dict[str, object]:
    """Kills once a stage has an epoch behind it, runs again, and says what was left and what came out."""
    mark = uuid.uuid4().hex
    held = {"CUDA_VISIBLE_DEVICES": "0,1", "POLYGRAIN_SLOTS": str(folder / ".work" / "slots")}
    environment = toy.ENVIRONMENT | held | {"TOY_MARK": mark, "PREFECT_API_URL": api}
    with (folder.parent / f"{folder.name}.log").open("w") as log:
        command = [sys.executable, "-m", "polygrain", "flow"]
        flow = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
            # Tests that a shell runs in the background ignore SIGINT, and children inherit that.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
    wait_for_epoch(folder, flow)
    victim = find(mark, target)
    assert victim is not None, f"no {target} is running"
    victim.send_signal(number)
    start = time.monotonic()
    code = flow.wait(120)
    while (left := marked(mark)) and time.monotonic() - start < 60:
        time.sleep(0.05)
    ended = time.monotonic() - start
    busy = sum(not free(folder / ".work" / "slots" / name) for name in ("0", "1"))
    checkpoints = len(list(folder.glob(".work/data/train/*/checkpoint")))
    said = toy.flow(folder, PREFECT_API_URL=api, **held)
    return {
        "code": code,
        "survivors": len(left),
        "slots_taken": busy,
        "ended_s": round(ended, 1),
        "continued": said.count("continues after epoch"),
        "checkpoints": checkpoints,
        "clean": toy.up_to_date(folder),
        "texts": {name: content.decode() for name, content in toy.texts(folder).items()},
    }


def free(slot: Path) -> bool:
    """Whether nobody holds this slot."""
    if not slot.exists():
        return True
    os.environ["POLYGRAIN_SLOTS"] = str(slot.parent)
    try:
        taken = slots.attempt(1, [slot.name])
        for descriptor in taken.descriptors if taken else []:
            os.close(descriptor)
        return taken is not None
    finally:
        del os.environ["POLYGRAIN_SLOTS"]


def expected() -> dict[str, str]:
    """What an undisturbed run writes."""
    trained = " ".join(str(epoch * epoch) for epoch in range(8)) + "\n"
    both = {f"data/train/{item}/text": trained for item in "ab"}
    return {"data/last/text": 2 * trained, "data/source/text": "1\n"} | both


def verdict(result: dict[str, object]) -> list[str]:
    """What was not as promised."""
    wrong = []
    if result["survivors"]:
        wrong.append(f"{result['survivors']} processes survived")
    if result["slots_taken"]:
        wrong.append(f"{result['slots_taken']} GPU slots stayed taken")
    if result["continued"] != result["checkpoints"]:
        wrong.append(f"{result['checkpoints']} checkpoints, {result['continued']} stages continued")
    if not result["clean"]:
        wrong.append("dvc status is not clean after the next run")
    if result["texts"] != expected():
        wrong.append(f"other bytes: {json.dumps(result['texts'])}")
    return wrong
