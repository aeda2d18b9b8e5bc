"""A run of the flow: order, results, what the pages show, and what happens when something fails or dies."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline import order, server
from pipeline.execution import Outcome
from pipeline.graph import Stage
from tests.pipeline import dying, toy


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["third"], r"unknown target 'third'; known here: source, .*last"),
        (["--profile", "large"], r"unknown profile 'large'; known here: none"),
        (["--jobs", "0"], r"--jobs is 0: give 1 or more"),
        (["--tensorboard", "dvc.yaml"], r"--tensorboard dvc.yaml cannot be made a folder: File exists"),
    ],
)
def test_main__bad_input_is_named_before_anything_starts(arguments, message, tmp_path, monkeypatch):

    said = toy.refusal("flow", toy.make(tmp_path / "toy"), monkeypatch, *arguments)
    assert re.fullmatch(f"error: {message}", said)


def test_main__no_repository(tmp_path, monkeypatch):

    assert re.match(r"error: .* is in no DVC repository", toy.refusal("flow", tmp_path, monkeypatch))


def test_main__a_server_that_does_not_answer(tmp_path, monkeypatch):

    address = f"http://127.0.0.1:{server.free_port()}/api"
    monkeypatch.setenv("PREFECT_API_URL", address)
    said = toy.refusal("flow", toy.make(tmp_path / "toy"), monkeypatch)
    assert said.startswith(f"error: no Prefect server answers at PREFECT_API_URL={address}: start one with `polygrain")


@pytest.mark.parametrize(
    ("results", "kind", "message"),
    [
        ({}, "COMPLETED", "nothing to do"),
        ({"a": "ran", "b": "ran", "c": "cached"}, "COMPLETED", "2 ran, 1 cached"),
        ({"a": "ran", "b": "failed", "c": "not run"}, "FAILED", "failed: b; not run, since they read from it: c"),
        ({"a": "stopped"}, "FAILED", "failed: a"),
        # Nothing that asked to run and did not may count as done.
        ({"a": "ran", "c": "not run"}, "FAILED", "failed: ; not run, since they read from it: c"),
    ],
)
def test_verdict__done_only_if_all_are(results, kind, message, tmp_path):
    from prefect.logging import disable_run_logger

    from pipeline import flows

    run = flows.Run(tmp_path, outcomes={name: Outcome(result, 1.0, ("last",)) for name, result in results.items()})
    with disable_run_logger():
        state = flows.verdict(run, [Stage(name, (), True, {}, "", ()) for name in results])
    assert (state.type.value, state.message) == (kind, message)


def ask(api: str, path: str, **body) -> list | dict:
    return server.call(api, path, body)


def run_of(api: str) -> dict:
    """The latest flow run; tests run one at a time."""
    return ask(api, "/flow_runs/filter", sort="START_TIME_DESC", limit=1)[0]


@pytest.mark.slow
def test_flow__alone_leaves_what_a_serial_repro_leaves(tmp_path):
    """With a server of its own, which is gone afterwards."""
    serial, parallel = (toy.make(tmp_path / name, second=2) for name in ("serial", "parallel"))
    toy.run(serial, "dvc", "repro")
    said = toy.flow(parallel, "--jobs", "4", TOY_MARK="alone")
    assert "Completed: 6 ran" in said
    assert toy.texts(parallel) == toy.texts(serial) and len(toy.texts(serial)) == 7
    assert (parallel / "dvc.lock").read_bytes() == (serial / "dvc.lock").read_bytes()
    assert toy.up_to_date(parallel)
    deadline = time.monotonic() + 20
    while dying.marked("alone"):
        assert time.monotonic() < deadline, "the flow's own server outlived it"
        time.sleep(0.1)
    assert toy.flow(parallel) == "Everything is up to date.\n"


@pytest.mark.slow
def test_flow__what_the_pages_show(api, tmp_path):
    """Tasks with their edges, logs, progress, the table of stages, the results; a second run does what changed only."""
    folder = toy.make(tmp_path / "toy", then={"last": "cp ../page.html data/last/index.html"})
    (tmp_path / "page.html").write_text(
        "<style>text{fill:red}</style><figure><figcaption>Curve</figcaption><svg><text>1</text></svg></figure>"
    )
    toy.flow(folder, PREFECT_API_URL=api)
    run = run_of(api)
    assert run["state_type"] == "COMPLETED" and run["name"]
    only = {"flow_runs": {"id": {"any_": [run["id"]]}}}
    tasks = {task["name"]: task for task in ask(api, "/task_runs/filter", **only)}
    assert set(tasks) == {"source", "first@f0", "first@f1", "last", *(f"second@s{i:02d}" for i in range(4))}
    drawn = server.call(api, f"/flow_runs/{run['id']}/graph-v2")
    label = {node_id: node["label"] for node_id, node in drawn["nodes"]}
    edges = {(label[parent["id"]], node["label"]) for _, node in drawn["nodes"] for parent in node["parents"]}
    assert ("source", "first@f0") in edges and ("first@f1", "second@s03") in edges and ("second@s00", "last") in edges
    assert len(edges) == 2 + 4 + 4
    logs = [
        line["message"] for line in ask(api, "/logs/filter", logs={"flow_run_id": {"any_": [run["id"]]}}, limit=200)
    ]
    assert "epoch 2/2: loss 0.1" in logs
    made = ask(api, "/artifacts/filter", artifacts={"flow_run_id": {"any_": [run["id"]]}}, limit=100)
    by_key = {artifact["key"]: artifact for artifact in made}
    assert by_key["progress-second-s00"]["data"] == 100
    assert "epoch 2/2: loss 0.1\n\n![loss](data:image/svg+xml;base64," in by_key["curves-second-s00"]["data"]
    assert "| loss | 0.1 | 0.1 | 0.5 |" in by_key["curves-second-s00"]["data"]
    rows = {row["stage"]: row for row in json.loads(by_key["stages"]["data"])}
    assert {row["result"] for row in rows.values()} == {"ran"} and rows["first@f0"]["seconds"] > 0
    assert by_key["results-last"]["data"].startswith("# Results")
    assert by_key["charts-last"]["data"].startswith("**Curve**\n\n![Curve](data:image/svg+xml;base64,")

    (folder / "data/first/f1/text").unlink()
    (folder / "data/second/s03/text").unlink()
    toy.flow(folder, PREFECT_API_URL=api)
    run = run_of(api)
    states = {
        task["name"]: task["state_name"]
        for task in ask(api, "/task_runs/filter", flow_runs={"id": {"any_": [run["id"]]}})
    }
    assert states == dict.fromkeys(["first@f1", "second@s01", "second@s03", "last"], "Cached")


@pytest.mark.slow
def test_flow__a_stage_that_fails(api, tmp_path):
    """Other branches finish, what reads from it is not run, its last 20 lines are shown, the code is 1.

    And `source`, which asks for a retry, gets it.
    """
    words = "; ".join(f"echo said {i}" for i in range(30))
    once = "if [ ! -e ../tried ]; then touch ../tried; exit 1; fi"
    fail = f'if [ "$DVC_STAGE" = second@s01 ]; then {words}; exit 9; fi'
    folder = toy.make(tmp_path / "toy", then={"source": once, "second": fail})
    graph = folder / "dvc.yaml"
    graph.write_text(graph.read_text().replace("desc: what all read", "desc: what all read\n    meta: {retries: 1}"))
    process = subprocess.run(
        [sys.executable, "-m", "polygrain", "flow"],
        cwd=folder,
        env=toy.ENVIRONMENT | {"PREFECT_API_URL": api},
        capture_output=True,
        text=True,
    )
    said = process.stdout + process.stderr
    assert process.returncode == 1
    assert "failed: second@s01" in said and "not run, since they read from it: last" in said
    shown = said.split("second@s01 failed; its last lines:")[1]
    assert "said 29" in shown and len(re.findall(r"^said \d+$", shown, re.M)) in range(17, 21)
    tasks = ask(api, "/task_runs/filter", flow_runs={"id": {"any_": [run_of(api)["id"]]}})
    states = {task["name"]: task["state_name"] for task in tasks}
    assert states.pop("second@s01") == "Failed" and states.pop("last") == "NotReady"
    assert set(states.values()) == {"Completed"} and len(states) == 6
    # It is named by its stage; Prefect would do so by an id.
    (last,) = [task for task in tasks if task["name"] == "last"]
    why = "not run, since it reads from second@s01 (failed)"
    assert last["state"]["message"] == why and why in said
    assert last["start_time"] is None or not list(folder.glob("data/last/*"))
    assert {task["name"]: task["run_count"] for task in tasks}["source"] == 2
    left = [line for line in toy.run(folder, "dvc", "status").splitlines() if line and not line[0].isspace()]
    assert left == ["second@s01:", "last:"]


def start(folder: Path, api: str, mark: str) -> subprocess.Popen:
    """A flow under way, one of whose stages has finished an epoch."""
    process = subprocess.Popen(
        [sys.executable, "-m", "polygrain", "flow"],
        cwd=folder,
        env=toy.ENVIRONMENT | {"PREFECT_API_URL": api, "TOY_MARK": mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    dying.wait_for_epoch(folder, process)
    return process


@pytest.mark.slow
def test_flow__cancelled_from_the_pages(api, tmp_path):
    # A flow looks every few seconds whether it is cancelled; the stage must not end before it does.
    folder = dying.make(tmp_path / "toy", seconds=order.SECONDS_BETWEEN_LOOKS)
    process = start(folder, api, str(tmp_path))
    ask(api, f"/flow_runs/{run_of(api)['id']}/set_state", state={"type": "CANCELLING"})
    assert process.wait(40) == 1
    assert dying.marked(str(tmp_path)) == []
    assert run_of(api)["state_type"] == "CANCELLED"
    assert list(folder.glob(".work/data/train/*/checkpoint"))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_flow__dying(api, tmp_path, number):
    """Nothing survives, no slot stays taken, and the next run continues from the checkpoints to the same bytes.

    All 27 cases are in benchmarks/kill_matrix.py.
    """
    result = dying.case(dying.make(tmp_path / "toy"), number, "flow", api)
    assert dying.verdict(result) == []
    assert result["code"] != 0 and result["continued"] > 0


@pytest.mark.slow
def test_flow__a_killed_run_is_marked_crashed(api):
    """By the server, which misses the sign of life of the run that the test above has killed."""
    runs = ask(api, "/flow_runs/filter", flow_runs={"state": {"type": {"any_": ["RUNNING", "CRASHED"]}}})
    killed = [
        run["id"] for run in runs if run["state_type"] == "RUNNING" or "no sign of life" in run["state"]["message"]
    ]
    assert len(killed) == 1
    deadline = time.monotonic() + 150
    while (run := ask(api, "/flow_runs/filter", flow_runs={"id": {"any_": killed}})[0])["state_type"] == "RUNNING":
        assert time.monotonic() < deadline
        time.sleep(2)
    assert run["state_type"] == "CRASHED" and "no sign of life" in run["state"]["message"]
