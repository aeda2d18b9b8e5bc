"""Stages on other machines: two workers in two clones, results through the remote."""

import subprocess
import sys
import time
import uuid
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from pipeline import graph, pool, server
from tests.pipeline import dying, toy


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return toy.make(tmp_path_factory.mktemp("pool") / "toy", first=2, second=1)


def test_revision_of__only_what_is_committed(folder):
    revision = pool.revision_of(folder)
    assert len(revision) == 40
    (folder / "new").write_text("untracked files are nobody's input")
    assert pool.revision_of(folder) == revision
    (folder / "params.json").write_text("{}")
    (folder / "dvc.lock").write_text("stages: {}\n")
    toy.run(folder, "git", "add", "dvc.lock")  # which a run changes
    with pytest.raises(ValueError, match=r"workers run commits, and these files are not committed: params.json$"):
        pool.revision_of(folder)
    toy.run(folder, "git", "reset", "-q", "--hard")


def test_entries_of__waits_for_a_file_that_is_being_written(folder, monkeypatch):
    lock = folder / "dvc.lock"
    whole = "schema: '2.0'\nstages:\n  source:\n    cmd: x\n  first@f0:\n    cmd: y\n"
    assert pool.entries_of(folder, ()) == {}
    lock.write_text(whole[:40])
    monkeypatch.setattr(pool.time, "sleep", lambda seconds: lock.write_text(whole))
    assert pool.entries_of(folder, ("first@f0", "raw.dvc")) == {"first@f0": {"cmd": "y"}}
    with pytest.raises(ValueError, match=r"dvc.lock lacks what gone have made"):
        pool.entries_of(folder, ("gone",), patience=0)
    lock.unlink()


def test_check_out__the_commit_and_what_the_stage_reads(folder, tmp_path):
    toy.run(tmp_path, "git", "clone", "-q", str(folder), "clone")
    clone = tmp_path / "clone"
    toy.commit(folder)  # a commit that the clone has yet to fetch
    (clone / "dvc.yaml").write_text("stages: {}")
    assert pool.check_out(clone, None, pool.revision_of(folder), {"source": {"cmd": "x"}}) == clone
    assert pool.git(clone, "rev-parse", "HEAD") == pool.revision_of(folder)
    assert (clone / "dvc.yaml").read_text() == (folder / "dvc.yaml").read_text()
    assert pool.entries_of(clone, ("source",)) == {"source": {"cmd": "x"}}
    with pytest.raises(ValueError, match="git checkout"):
        pool.check_out(clone, None, "0" * 40, {})


def test_worker__needs_a_remote_and_a_server(tmp_path, monkeypatch):
    clone = toy.make(tmp_path / "clone")
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    assert toy.refusal("worker", clone, monkeypatch).startswith("error: no remote is known here")
    said = toy.refusal("worker", clone, monkeypatch, "--remote", str(tmp_path / "remote"))
    assert said.startswith("error: no Prefect server is named: set PREFECT_API_URL")


class Server:
    """One that hands out logs as Prefect's does: those at or after a moment, so many at once."""

    def __init__(self):
        self.logs = []

    def write(self, seconds, message):
        moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
        self.logs.append(SimpleNamespace(id=uuid.uuid4(), timestamp=moment, message=message))

    def read_logs(self, wanted, limit, offset, sort):
        after = wanted.timestamp.after_ if wanted.timestamp else None
        found = [log for log in self.logs if after is None or log.timestamp >= after]
        return sorted(found, key=lambda log: log.timestamp)[offset : offset + limit]


def test_said__every_line_once_also_those_that_come_late(monkeypatch):
    monkeypatch.setattr(pool, "LOGS_AT_ONCE", 3)
    server, heard = Server(), []
    said = pool.Said(server, uuid.uuid4())
    assert said.news() == []
    for moment in range(60):
        for line in range(moment % 5):
            server.write(moment, f"{moment} {line}")
        if moment > 10:
            server.write(moment - 5, f"{moment} late\nin two lines")
        heard += said.news()
    assert sorted(heard) == sorted(line for log in server.logs for line in log.message.splitlines())


@pytest.mark.slow
def test_workers__two_clones_share_the_stages(api, tmp_path):
    owner = toy.make(tmp_path / "owner", 2, 1, seconds=4, then={"first": 'echo "epoch 1/1: loss 0.5"'})
    remote = str(tmp_path / "remote")
    toy.run(owner, "dvc", "remote", "add", "--local", "--default", "team", remote)
    environment = toy.ENVIRONMENT | {"PREFECT_API_URL": api, "TOY_MARK": str(tmp_path)}
    workers = []
    for name in ("one", "two"):
        toy.run(tmp_path, "git", "clone", "-q", str(owner), name)
        command = [sys.executable, "-m", "polygrain", "worker", "--name", name, "--remote", remote]
        # Each imports the pipeline of its own clone on another machine; here all three have the one under test.
        with (tmp_path / f"{name}.log").open("w") as log:
            workers.append(subprocess.Popen(command, cwd=tmp_path / name, env=environment, stdout=log, stderr=log))
    try:
        said = toy.flow(owner, "--workers", "first", PREFECT_API_URL=api, timeout=400)
        assert "Completed: 3 ran" in said, said
        logs = said.splitlines()
        # What the worker says is seen here, while it says it.
        (told,) = [i for i, line in enumerate(logs) if "'first@f1' - epoch 1/1: loss 0.5" in line]
        assert told < next(i for i, line in enumerate(logs) if "'first@f1' - worker: ran" in line)
        run = server.call(
            api, "/flow_runs/filter", {"sort": "START_TIME_DESC", "flows": {"name": {"any_": ["polygrain"]}}}
        )[0]
        made = server.call(api, "/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [run["id"]]}}})
        assert {"progress-first-f1", "curves-first-f1"} <= {artifact["key"] for artifact in made}
        places = {
            stage: next(line for line in logs if f"'{stage}' - worker: ran" in line)
            for stage in ("first@f0", "first@f1")
        }
        assert {line.rsplit("/", 1)[1] for line in places.values()} == {"one", "two"}
        assert (owner / "data/first/f1/text").read_text() == "source\nf1\n"
        stages = {stage.name: stage.stale for stage in graph.load(owner)}
        assert not any(stages[name] for name in ("source", "first@f0", "first@f1"))
    finally:
        for process in workers:
            process.terminate()
        codes = [process.wait(60) for process in workers]
    deadline = time.monotonic() + 20
    while dying.marked(str(tmp_path)):
        assert time.monotonic() < deadline, f"a worker left processes behind ({codes})"
        time.sleep(0.1)


@pytest.mark.parametrize("revision", ["", "main", "--help", "--orphan=x", "0" * 39, "0" * 40 + "\n"])
def test_check_out__only_commits_by_their_full_names(tmp_path, revision):
    with pytest.raises(ValueError, match="give the full name of a commit"):
        pool.check_out(tmp_path, None, revision, {})
