"""Runs that the server starts, and stages on other machines: two workers in two clones."""

import logging
import time

import pytest

from benchmarks import toy
from pipeline import graph, share, workers


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return toy.make(tmp_path_factory.mktemp("pool") / "toy", first=2, second=1)


def test_revision_of__only_what_is_committed(folder):
    revision = workers.revision_of(folder)
    (folder / "new").write_text("untracked files are nobody's input")
    assert workers.revision_of(folder) == revision and len(revision) == 40
    (folder / "params.json").write_text("{}")
    with pytest.raises(ValueError, match=r"not committed: params.json$"):
        workers.revision_of(folder)
    toy.run(folder, "git", "reset", "-q", "--hard")


def test_check_out__the_commit_and_what_the_stage_reads(folder, tmp_path):
    toy.run(tmp_path, "git", "clone", "-q", str(folder), "clone")
    clone = tmp_path / "clone"
    toy.commit(folder)  # a commit that the clone has yet to fetch
    (clone / "dvc.yaml").write_text("stages: {}")
    revision = workers.revision_of(folder)
    assert workers.check_out(clone, None, revision, {"source": {"cmd": "x"}}) == clone
    assert workers.git(clone, "rev-parse", "HEAD") == revision
    assert (clone / "dvc.yaml").read_text() == (folder / "dvc.yaml").read_text()
    assert workers.recorded(clone, ("source", "raw.dvc")) == {"source": {"cmd": "x"}}
    with pytest.raises(ValueError, match="git checkout"):
        workers.check_out(clone, None, "0" * 40, {})


@pytest.mark.slow
def test_reproduce_here__a_run_that_is_shared_is_not_repeated_and_the_clone_is_as_before(tmp_path, monkeypatch):
    """Of a commit that is not the clone's, with a dvc.lock that knows something else."""
    marker = tmp_path / "marker"
    owner = toy.make(tmp_path / "owner", 1, 1, {"first": f"echo ran >> {marker}"})
    toy.run(owner, "dvc", "repro")
    clone = toy.clone(owner, "clone")
    toy.commit(owner)
    share.push(owner, str(tmp_path / "remote"))
    share.use_remote(clone, str(tmp_path / "remote"))
    (clone / "dvc.lock").write_text("schema: '2.0'\nstages: {}\n")
    before = [workers.head_of(clone), workers.git(clone, "rev-parse", "HEAD"), (clone / "dvc.lock").read_bytes()]
    monkeypatch.setenv(workers.CLONE, str(clone))
    monkeypatch.setattr(workers, "get_run_logger", lambda: logging.getLogger("test"))
    upstream = workers.recorded(owner, ["source"])
    state = workers.reproduce_here.fn("first@f0", None, workers.revision_of(owner), upstream)
    assert state.message.startswith("cached") and marker.read_text() == "ran\n"
    assert (clone / "data/first/f0/text").read_text() == "source\nf0\n"
    assert before == [
        workers.head_of(clone),
        workers.git(clone, "rev-parse", "HEAD"),
        (clone / "dvc.lock").read_bytes(),
    ]
    (tmp_path / "remote/runs").rename(tmp_path / "gone")
    (clone / ".dvc/cache").rename(tmp_path / "cache")
    assert workers.reproduce_here.fn("first@f0", None, before[1], upstream).message.startswith("ran")
    assert marker.read_text() == "ran\nran\n" and workers.head_of(clone) == "main"


def test_require_clean__only_what_nobody_else_has(folder, tmp_path):
    toy.run(tmp_path, "git", "clone", "-q", str(folder), "clone")
    clone = tmp_path / "clone"
    (clone / "mine").write_text("a checkout leaves untracked files alone")
    (clone / "dvc.lock").write_text("what an earlier stage left")
    toy.run(clone, "git", "add", "--intent-to-add", "dvc.lock")
    workers.require_clean(clone)
    (clone / "params.json").write_text("{}")
    with pytest.raises(ValueError, match=r"not committed.*: params.json\. Commit them"):
        workers.require_clean(clone)


def test_work_and_serve__say_what_is_missing(folder, monkeypatch, refusal):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    assert "no remote is known" in refusal(folder, "worker")
    assert "no Prefect server is known" in refusal(folder, "serve")
    toy.run(folder, "dvc", "remote", "add", "--local", "--default", "team", str(folder / "remote"))
    assert "no Prefect server is known" in refusal(folder, "flow", "--workers")


@pytest.mark.slow
def test_work__two_clones_share_the_stages(pages, tmp_path):
    """Which start after the run that waits for them."""
    owner = toy.make(tmp_path / "owner", 2, 1, {"first": 'sleep 4; echo "epoch 1/1: loss 0.5"'})
    remote, mark = str(tmp_path / "remote"), str(tmp_path)
    toy.run(owner, "dvc", "remote", "add", "--local", "--default", "team", remote)
    started = toy.start(owner, "flow", "--workers", "first", log=tmp_path / "flow.log", TOY_MARK=mark, **toy.at(pages))
    machines, deadline = [], time.monotonic() + 100
    while "waits for a worker" not in (tmp_path / "flow.log").read_text() and time.monotonic() < deadline:
        time.sleep(0.2)
    for name in ("one", "two"):
        clone, log = toy.clone(owner, name), tmp_path / f"{name}.log"
        words = ["worker", "--name", name, "--remote", remote]
        # Each imports the pipeline of its own clone on another machine; here all three have the one under test.
        machines.append(toy.start(clone, *words, log=log, TOY_MARK=mark, **toy.at(pages)))
    try:
        code = started.wait(400)
        output = (tmp_path / "flow.log").read_text()
        assert code == 0 and "Completed: 3 ran" in output and "waits for a worker" in output, output
        lines = output.splitlines()
        assert any("'first@f1' - epoch 1/1: loss 0.5" in line for line in lines)
        ends = [line for line in lines for name in ("one", "two") if line.endswith(f", in {tmp_path / name}")]
        assert {line.rsplit("/", 1)[1] for line in ends if "first@" in line} == {"one", "two"}
        assert (owner / "data/first/f1/text").read_text() == "source\nf1\n"
        stale = {stage.name: stage.stale for stage in graph.load(owner)}
        assert not any(stale[name] for name in ("source", "first@f0", "first@f1"))
    finally:
        for process in (started, *machines):
            process.terminate()
        codes = [process.wait(60) for process in (started, *machines)]
    assert toy.survivors(mark) == [], codes


@pytest.mark.slow
def test_serve__the_server_starts_a_run(pages, tmp_path):
    """With parameters of its own, as the form on the pages sends them, and again by Retry; it knows the schedule."""
    folder = toy.make(tmp_path / "toy", first=1, second=1, then={"first": "test -e repaired"})
    (folder / "pipeline").symlink_to(toy.ROOT / "pipeline")
    words = ["serve", "--cron", "0 2 * * *", "source"]
    process = toy.start(folder, *words, log=tmp_path / "log", TOY_MARK=str(tmp_path), **toy.at(pages))
    try:
        deadline, asked = time.monotonic() + 100, {"deployments": {"name": {"any_": ["graph"]}}}
        while not (known := pages.call("/deployments/filter", asked)):
            assert process.poll() is None and time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.2)
        assert known[0]["schedules"][0]["schedule"]["cron"] == "0 2 * * *"
        assert known[0]["parameters"]["targets"] == ["source"]
        body = {"parameters": {"targets": ["first"]}, "state": {"type": "SCHEDULED"}}
        run = pages.call(f"/deployments/{known[0]['id']}/create_flow_run", body)

        def end() -> tuple[str, str]:
            state, deadline = {"type": "SCHEDULED"}, time.monotonic() + 100
            while state["type"] not in ("COMPLETED", "FAILED", "CRASHED") and time.monotonic() < deadline:
                time.sleep(0.5)
                state = pages.call("/flow_runs/filter", {"flow_runs": {"id": {"any_": [run["id"]]}}})[0]["state"]
            return state["type"], state["message"]

        assert end()[0] == "FAILED", (tmp_path / "log").read_text()
        (folder / "repaired").touch()
        again = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry"}}  # what the button sends
        assert pages.call(f"/flow_runs/{run['id']}/set_state", again)["status"] == "ACCEPT"
        assert end() == ("COMPLETED", "1 ran"), (tmp_path / "log").read_text()
        assert (folder / "data/first/f0/text").exists() and not (folder / "data/second").exists()
    finally:
        process.terminate()
        process.wait(60)
    assert toy.survivors(str(tmp_path)) == []
