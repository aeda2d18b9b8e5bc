"""A run of the flow: order, results, what the pages show, and what happens when something fails or dies."""

import json
import os
import re
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from unittest.mock import MagicMock

import pytest

from pipeline import flow
from pipeline.graph import Stage
from pipeline.run import Outcome
from tests.helpers import driven, killed, toy


@pytest.mark.parametrize(
    ("results", "kind", "message"),
    [
        ({}, "COMPLETED", "nothing to do"),
        ({"a": "ran", "b": "ran", "c": "cached"}, "COMPLETED", "2 ran, 1 cached"),
        ({"a": "ran", "b": "failed", "c": "not run"}, "FAILED", "failed: b; not run, since they read from it: c"),
        ({"a": "stopped"}, "FAILED", "failed: a; not run, since they read from it: none"),
        # Nothing that asked to run and did not may count as done.
        ({"a": "ran", "c": None}, "FAILED", "failed: ; not run, since they read from it: c"),
    ],
)
def test_verdict__done_only_if_all_are(results, kind, message, tmp_path):
    from prefect.logging import disable_run_logger

    run = flow.Run(tmp_path, 1)
    run.outcomes = {name: Outcome(result, 1.0, ("last",)) for name, result in results.items() if result}
    with disable_run_logger():
        state = flow.verdict(run, [Stage(name, (), True, {}) for name in results])
    assert (state.type.value, state.message) == (kind, message)


def test_run__a_stage_that_waits_for_a_gpu_takes_no_job(tmp_path, monkeypatch):
    from prefect.logging import disable_run_logger

    monkeypatch.setenv("POLYGRAIN_SLOTS", str(tmp_path / "slots"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(flow, "StageProgress", MagicMock())
    monkeypatch.setattr(flow, "run_stage", lambda *given: Outcome("ran", 0.0, (given[4]["CUDA_VISIBLE_DEVICES"],)))
    graph = flow.Run(tmp_path, jobs=1)
    with disable_run_logger(), ThreadPoolExecutor() as threads:
        with flow.gpus.hold(1, Event()):
            waiting = threads.submit(graph.reproduce, Stage("gpu", (), True, {"gpu": 1}))
            time.sleep(0.3)
            threads.submit(graph.reproduce, Stage("cpu", (), True, {})).result(10)
            assert graph.outcomes["cpu"].tail == ("",) and "gpu" not in graph.outcomes
        waiting.result(10)
    assert graph.outcomes["gpu"].tail == ("0",)


def test_chain__what_one_worker_can_run_in_one_start(tmp_path, monkeypatch):
    """Stages on GPUs side by side are for several workers; a stage that a worker has run so is not dispatched again."""
    gpu = {"gpu": 1}
    todo = [
        Stage("images", ("raw.dvc",), True, {}),
        Stage("sizes", ("images",), True, {}),
        Stage("means@a", ("sizes",), True, {}),
        Stage("means@b", ("sizes", "images"), True, {}),
        Stage("seeds", ("means@a", "means@b"), True, gpu),
        Stage("train@a", ("seeds",), True, gpu),
        Stage("train@b", ("seeds",), True, gpu),
        Stage("report", ("train@a", "means@b"), True, {}),
    ]
    dispatched = []

    def on_worker(stages, *given):
        dispatched.append([stage.name for stage in stages])
        return {stage.name: Outcome("ran", 1.0) for stage in stages}

    monkeypatch.setattr(flow, "StageProgress", MagicMock())
    monkeypatch.setattr(flow, "get_run_logger", MagicMock())
    run = flow.Run(tmp_path, 1, on_worker, todo=todo)
    assert [run.reproduce(stage).type.value for stage in todo] == ["COMPLETED"] * len(todo)
    assert dispatched == [["images", "sizes", "means@a", "means@b"], ["seeds"], ["train@a"], ["train@b"], ["report"]]


def latest(pages) -> dict:
    """The latest run of the graph; tests run one at a time."""
    return pages.call("/flow_runs/filter", {"sort": "START_TIME_DESC", "limit": 1})[0]


def of(pages, kind: str, run: dict) -> list[dict]:
    """The task_runs, logs or artifacts of a run."""
    return pages.call(f"/{kind}/filter", {kind: {"flow_run_id": {"any_": [run["id"]]}}, "limit": 200})


def soon(ask: Callable[[], object], expected: object) -> None:
    """A server whose database was locked writes a state a moment later."""
    deadline = time.monotonic() + 30
    while (found := ask()) != expected and time.monotonic() < deadline:
        time.sleep(0.5)
    assert found == expected


def states_of(pages) -> dict[str, str]:
    """The tasks of the latest run, by name."""
    return {stage_of(task): task["state_name"] for task in of(pages, "task_runs", latest(pages))}


def stage_of(task: dict) -> str:
    """The stage that a task run's name has behind the graph's."""
    return task["name"].removeprefix("default graph: ")


@pytest.mark.slow
def test_flow__alone_leaves_what_a_serial_repro_leaves(tmp_path):
    """With a server of its own, which is gone afterwards, and no network."""
    threads = {"last": "mkdir -p .work; echo $OMP_NUM_THREADS > .work/threads"}
    serial, parallel = (toy.make(tmp_path / name, second=2, then=threads) for name in ("serial", "parallel"))
    toy.run(serial, "dvc", "repro")
    nowhere = {name: "http://127.0.0.1:9" for name in ("http_proxy", "https_proxy")}
    output = toy.polygrain(parallel, "flow", "--jobs", "4", TOY_MARK="alone", OMP_NUM_THREADS="", **nowhere)
    assert "Completed: 6 ran" in output
    assert toy.texts(parallel) == toy.texts(serial) and len(toy.texts(serial)) == 7
    assert toy.up_to_date(parallel)
    assert int((parallel / ".work/threads").read_text()) == max(1, len(os.sched_getaffinity(0)) // 4)
    assert toy.survivors("alone") == []
    assert "Everything is up to date." in toy.polygrain(parallel, "flow").splitlines()


@pytest.mark.slow
def test_flow__what_the_pages_show(pages, tmp_path):
    """Tasks with their edges, logs, progress, the table of stages, the results; a second run does what changed only."""
    folder = toy.make(tmp_path / "toy", second=2)
    toy.polygrain(folder, "flow", **toy.at(pages))
    run = latest(pages)
    assert run["state_type"] == "COMPLETED" and run["name"].startswith("default graph: 6 of 6 stages")
    soon(lambda: {*states_of(pages).values()}, {"Completed"})
    drawn = pages.call(f"/flow_runs/{run['id']}/graph-v2")
    label = {node_id: node["label"] for node_id, node in drawn["nodes"]}
    edges = {(label[parent["id"]], node["label"]) for _, node in drawn["nodes"] for parent in node["parents"]}
    assert {name.partition(": ")[0] for name in label.values()} == {"default graph"}
    edges = {tuple(name.removeprefix("default graph: ") for name in edge) for edge in edges}
    assert ("source", "first@f0") in edges and ("first@f1", "second@s01") in edges and ("second@s00", "last") in edges
    assert len(edges) == 2 + 2 + 2
    messages = [line["message"] for line in of(pages, "logs", run)]
    assert "epoch 2/2: loss 0.1" in messages
    by_key = {artifact["key"]: artifact["data"] for artifact in of(pages, "artifacts", run)}
    assert by_key["progress-second-s00"] == 100
    rows = {row["stage"]: row for row in json.loads(by_key["stages"])}
    assert {row["result"] for row in rows.values()} == {"ran"} and rows["first@f0"]["seconds"] > 0
    assert by_key["results-last"].startswith("# Results")

    (folder / "data/first/f1/text").unlink()
    (folder / "data/second/s01/text").unlink()
    toy.polygrain(folder, "flow", **toy.at(pages))
    soon(lambda: states_of(pages), dict.fromkeys(["first@f1", "second@s01", "last"], "Cached"))


@pytest.mark.slow
def test_flow__a_stage_that_fails(pages, tmp_path):
    """Other branches finish, what reads from it is not run, its last lines are shown, the code is 1."""
    fails = '[ "$DVC_STAGE" != second@s01 ] || (seq 30; exit 9)'
    folder = toy.make(tmp_path / "toy", second=2, then={"second": fails})
    output = toy.polygrain(folder, "flow", check=False, **toy.at(pages))
    assert "failed: second@s01" in output and "not run, since they read from it: last" in output
    tail = output.split("second@s01 failed; its last lines:")[1]
    assert re.search(r"^30$", tail, re.M) and not re.search(r"^[1-9]$", tail, re.M)
    done = dict.fromkeys(["source", "first@f0", "first@f1", "second@s00"], "Completed")
    soon(lambda: states_of(pages), done | {"second@s01": "Failed", "last": "NotReady"})
    tasks = {stage_of(task): task for task in of(pages, "task_runs", latest(pages))}
    assert "reads from second@s01 (failed)" in tasks["last"]["state"]["message"]
    left = [line for line in toy.run(folder, "dvc", "status").splitlines() if line and not line[0].isspace()]
    assert left == ["second@s01:", "last:"]


@pytest.mark.slow
@driven.needed
def test_flow__cancelled_on_the_pages(pages, tmp_path):
    """By the link that the run prints. What waits for a job is not said to run, and what did not run is no error."""
    folder = toy.make_training(tmp_path / "toy", seconds=15)
    words = ("flow", "--jobs", "1")
    process = toy.start(folder, *words, log=tmp_path / "log", TOY_MARK=str(tmp_path), **toy.at(pages))
    toy.wait_for_epoch(folder, process)

    soon(lambda: sorted(states_of(pages).values()), ["Completed", "Pending", "Running", "Waiting"])
    link = re.search(r"Watch this run at (\S+)", (tmp_path / "log").read_text())[1]
    with driven.at(link) as browser:
        for word in ("Cancel", "Confirm"):
            button = f"[...document.querySelectorAll('button')].find(one => one.innerText.trim() == '{word}')"
            browser.until(f"{button} && ({button}.click(), true)")
        # The browser stays until then: closed at once, it might not have told the server yet.
        assert process.wait(120) == 1
    assert toy.survivors(str(tmp_path)) == []
    assert latest(pages)["state_type"] == "CANCELLED"
    known = {"Cancelled", "Completed", "NotReady"}
    soon(lambda: (states_of(pages)["source"], {*states_of(pages).values()} <= known), ("Completed", True))
    logs = of(pages, "logs", latest(pages))
    assert not [line for line in logs if line["level"] >= 40 and line["name"] == "prefect.task_runs"]
    assert not [line for line in logs if "NoneType" in line["message"]]
    assert list(folder.glob(".work/data/train/*/checkpoint"))


@pytest.mark.slow
@pytest.mark.parametrize(("number", "target"), [(signal.SIGINT, "flow"), (signal.SIGTERM, "dvc")])
def test_flow__dying(pages, tmp_path, number, target):
    """Nothing survives, no slot stays taken, and the next run continues from the checkpoints to the same bytes."""
    result = killed.case(toy.make_training(tmp_path / "toy"), number, target, pages)
    assert result["wrong"] == [] and result["code"] != 0


@pytest.mark.slow
def test_flow__killed_outright_it_is_marked_crashed(pages, tmp_path):
    """By the server, which misses its sign of life."""
    result = killed.case(toy.make_training(tmp_path / "toy"), signal.SIGKILL, "flow", pages)
    assert result["wrong"] == [] and result["continued"] > 0
    body = {"flow_runs": {"state": {"type": {"any_": ["RUNNING", "CRASHED"]}}}, "sort": "START_TIME_DESC", "limit": 1}
    deadline = time.monotonic() + 150
    while (run := pages.call("/flow_runs/filter", body)[0])["state_type"] == "RUNNING":
        assert time.monotonic() < deadline
        time.sleep(2)
    assert run["state_type"] == "CRASHED" and "no sign of life" in run["state"]["message"]
