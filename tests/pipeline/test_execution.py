"""One stage by one dvc: what it says, what becomes of it, and how all are stopped."""

import os
import threading
import time

import pytest

from pipeline import execution
from pipeline.execution import Calls
from tests.pipeline import toy


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return toy.make(tmp_path_factory.mktemp("execution") / "toy", first=1, second=1)


@pytest.fixture
def calls():
    calls = Calls()
    yield calls
    calls.stop()


def test_run__lines_code_environment(calls, tmp_path):
    lines = []
    code = calls.run(["sh", "-c", "echo $WORD; echo no >&2; pwd; exit 3"], tmp_path, lines.append, {"WORD": "yes"})
    assert code == 3 and lines == ["yes", "no", str(tmp_path)]


def test_run__bytes_that_are_no_text(calls, tmp_path):
    lines = []
    assert calls.run(["printf", r"a\377b\n"], tmp_path, lines.append) == 0
    assert lines == ["a\N{REPLACEMENT CHARACTER}b"]


def test_run__a_listener_that_fails_ends_the_command(calls, tmp_path):
    def fail(line: str) -> None:
        raise RuntimeError(line)

    start = time.monotonic()
    with pytest.raises(RuntimeError, match="hello"):
        calls.run(["sh", "-c", "echo hello; sleep 60"], tmp_path, fail)
    assert time.monotonic() - start < 20


def run_three(calls, folder, script, heard) -> tuple[list[int], list[threading.Thread]]:
    """Three calls side by side: where their codes will be, and their threads."""
    codes: list[int] = []
    threads = [
        threading.Thread(target=lambda: codes.append(calls.run(["sh", "-c", script], folder, heard.append)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    return codes, threads


@pytest.mark.parametrize("lines", [3, 0])
def test_stop__ends_all_and_lets_none_begin(calls, tmp_path, lines):
    """Commands that run, and such as wait for dvc to be loaded."""
    heard: list[str] = []
    codes, threads = run_three(calls, tmp_path, "echo begun; sleep 60 & sleep 60", heard)
    deadline = time.monotonic() + 20
    while len(heard) < lines or not calls._running:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    calls.stop()
    for thread in threads:
        thread.join(10)
    assert codes == [143, 143, 143]
    assert calls.run(["touch", "made"], tmp_path, print) == 143
    assert not (tmp_path / "made").exists()


def test_run__a_process_that_forks_is_replaced_when_it_dies(calls, tmp_path):
    assert calls.run(["true"], tmp_path, print) == 0
    calls._forks._process.kill()
    calls._forks._process.wait()
    assert calls.run(["sh", "-c", "exit 7"], tmp_path, print) == 7


def test_reproduce__ran_then_cached_then_failed(calls, folder):
    said = []
    outcome = execution.reproduce(calls, folder, "source", 0, said.append)
    assert outcome.result == "ran" and (folder / "data/source/text").read_text() == "source\n"
    assert said[0] == "Running stage 'source':" and not any("git add" in line or "dvc push" in line for line in said)
    assert execution.reproduce(calls, folder, "source", 0, said.append).result == "cached"
    outcome = execution.reproduce(calls, folder, "last", 0, said.append)
    assert outcome.result == "failed" and "data/second" in " ".join(outcome.tail)


def test_reproduce__devices_are_the_slots(calls, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    monkeypatch.setenv("POLYGRAIN_SLOTS", str(tmp_path / "slots"))
    seen = {}

    def record(command, folder, line, environment, descriptors):
        seen.update(environment, held=[os.get_inheritable(one) for one in descriptors])
        return 0

    monkeypatch.setattr(calls, "run", record)
    execution.reproduce(calls, folder, "first@f0", 1, print)
    assert seen == {"CUDA_VISIBLE_DEVICES": "4", "held": [False]}
    seen.clear()
    execution.reproduce(calls, folder, "first@f0", 0, print)
    assert seen == {"held": []}


def test_reproduce__stopped_while_it_waits_for_a_device(calls, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("POLYGRAIN_SLOTS", str(tmp_path / "slots"))
    with execution.slots.held(1, ["0"], threading.Event()):
        calls.stopping.set()
        assert execution.reproduce(calls, folder, "first@f0", 1, print).result == "stopped"
