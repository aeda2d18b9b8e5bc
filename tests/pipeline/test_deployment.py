"""Runs that the server starts: by its pages, or by the clock."""

import subprocess
import sys
import time

import pytest

from pipeline import server
from tests.pipeline import dying, toy


def test_main__needs_a_server_and_a_known_graph(tmp_path, monkeypatch):
    folder = toy.make(tmp_path / "toy")
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    assert "start one with `polygrain ui`" in toy.refusal("serve", folder, monkeypatch)
    assert "unknown target 'third'" in toy.refusal("serve", folder, monkeypatch, "third")
    assert "unknown profile 'large'" in toy.refusal("serve", folder, monkeypatch, "--profile", "large")


@pytest.mark.slow
def test_main__the_server_starts_a_run(api, tmp_path):
    """With parameters of its own, as the form on the pages sends them; a schedule is known to the server."""
    folder = toy.make(tmp_path / "toy", first=1, second=1)
    (folder / "pipeline").symlink_to(toy.ROOT / "pipeline")
    command = [sys.executable, "-m", "polygrain", "serve", "--cron", "0 2 * * *", "source"]
    environment = toy.ENVIRONMENT | {"PREFECT_API_URL": api, "TOY_MARK": str(tmp_path)}
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 100
        while not (known := server.call(api, "/deployments/filter", {"deployments": {"name": {"any_": ["graph"]}}})):
            assert process.poll() is None and time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.2)
        assert known[0]["schedules"][0]["schedule"]["cron"] == "0 2 * * *"
        assert known[0]["parameters"]["targets"] == ["source"]
        body = {"parameters": {"targets": ["first"]}, "state": {"type": "SCHEDULED"}}
        made = server.call(api, f"/deployments/{known[0]['id']}/create_flow_run", body)
        state = {"type": "SCHEDULED"}
        while state["type"] not in ("COMPLETED", "FAILED", "CRASHED") and time.monotonic() < deadline:
            time.sleep(0.5)
            one = {"flow_runs": {"id": {"any_": [made["id"]]}}}
            state = server.call(api, "/flow_runs/filter", one)[0]["state"]
        assert (state["type"], state["message"]) == ("COMPLETED", "2 ran"), (tmp_path / "log").read_text()
        assert (folder / "data/first/f0/text").exists() and not (folder / "data/second").exists()
    finally:
        process.terminate()
        process.wait(60)
    assert dying.marked(str(tmp_path)) == []
