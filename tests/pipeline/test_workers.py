"""Stages on other machines: two workers in two clones."""

import logging
import time
from unittest.mock import MagicMock

import pytest

from pipeline import graph, share, workers
from tests.helpers import toy


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return toy.make(tmp_path_factory.mktemp("pool") / "toy", first=2, second=1)


def test_revision_of__only_what_is_committed(folder):
    """But for a dvc.lock, which is a worker's own."""
    revision = workers.revision_of(folder)
    (folder / "new").write_text("untracked files are nobody's input")
    (folder / "dvc.lock").write_text("what an earlier stage left")
    toy.run(folder, "git", "add", "--intent-to-add", "dvc.lock")
    assert workers.revision_of(folder) == revision and len(revision) == 40
    (folder / "params.json").write_text("{}")
    with pytest.raises(ValueError, match=r"not committed: params.json\. Commit them"):
        workers.revision_of(folder)
    toy.run(folder, "git", "reset", "-q", "--hard")


def test_revision_of__what_a_profile_is_composed_of_is_committed_not_what_is_composed(folder, tmp_path):
    clone = toy.run(tmp_path, "git", "clone", "-q", str(folder), "clone") or tmp_path / "clone"
    for name in ("shop/values.yaml", "shop/params.yaml", "shop/dvc.yaml", "by hand/params.yaml"):
        (clone / "profiles" / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / "profiles" / name).write_text("{}")
    toy.commit(clone)
    for file in clone.glob("profiles/shop/[!v]*.yaml"):
        file.write_text("composed: anew")
    assert workers.revision_of(clone)
    (clone / "profiles/by hand/params.yaml").write_text("changed: 1")
    with pytest.raises(ValueError, match=r"not committed: profiles/by hand/params.yaml\. Commit"):
        workers.revision_of(clone)


def test_as_it_was__the_branch_and_the_dvc_lock(folder, tmp_path):
    clone = toy.run(tmp_path, "git", "clone", "-q", str(folder), "clone") or tmp_path / "clone"
    own = 'schema: "2.0"\nstages: {last: {cmd: y}}\n'
    (clone / "dvc.lock").write_text(own)
    with workers.as_it_was(clone):
        workers.check_out(clone, None, workers.revision_of(folder), {"source": {"cmd": "x"}})
        assert workers.locked(clone) == {"source": {"cmd": "x"}, "last": {"cmd": "y"}}
        assert workers.git(clone, "branch", "--show-current") == ""
    assert workers.git(clone, "branch", "--show-current") == "main" and (clone / "dvc.lock").read_text() == own


def test_check_out__the_commit_and_what_the_stage_reads(folder, tmp_path):
    toy.run(tmp_path, "git", "clone", "-q", str(folder), "clone")
    clone = tmp_path / "clone"
    toy.commit(folder)  # a commit that the clone has yet to fetch
    (clone / "dvc.yaml").write_text("stages: {}")
    revision = workers.revision_of(folder)
    assert workers.check_out(clone, None, revision, {"source": {"cmd": "x"}}) == clone
    assert workers.git(clone, "rev-parse", "HEAD") == revision
    assert (clone / "dvc.yaml").read_text() == (folder / "dvc.yaml").read_text()
    assert workers.recorded(clone, ("source", "raw.dvc")) == {"source": {"cmd": "x"}, "raw.dvc": {}}
    with pytest.raises(ValueError, match="git checkout"):
        workers.check_out(clone, None, "0" * 40, {})


@pytest.mark.slow
def test_reproduce_here__a_run_that_is_shared_is_not_repeated(tmp_path, monkeypatch):
    """Of a commit that is not the clone's."""
    marker = tmp_path / "marker"
    owner = toy.make(tmp_path / "owner", 1, 1, {"first": f"echo ran >> {marker}"})
    toy.run(owner, "dvc", "repro")
    clone, lock = toy.clone(owner, "clone"), (owner / "dvc.lock").rename(tmp_path / "lock")
    toy.commit(owner)
    lock.rename(owner / "dvc.lock")  # else the commit would say where the result is
    share.push(owner, str(tmp_path / "remote"))
    share.use_remote(clone, str(tmp_path / "remote"))
    monkeypatch.setenv(workers.CLONE, str(clone))
    monkeypatch.setattr(workers, "get_run_logger", lambda: logging.getLogger("test"))
    monkeypatch.setattr(workers, "StageProgress", MagicMock())
    revision, upstream = workers.revision_of(owner), workers.recorded(owner, ["source"])
    state = workers.reproduce_here.fn(["first@f0"], None, revision, upstream)
    assert state.message.startswith("first@f0: cached") and marker.read_text() == "ran\n"
    assert (clone / "data/first/f0/text").read_text() == "source\nf0\n"
    (tmp_path / "remote/runs").rename(tmp_path / "gone")
    (clone / ".dvc/cache").rename(tmp_path / "cache")
    (clone / "dvc.lock").unlink()
    assert workers.reproduce_here.fn(["first@f0"], None, revision, upstream).message.startswith("first@f0: ran")
    assert marker.read_text() == "ran\nran\n"


def test_work_and_flow__say_what_is_missing(folder, monkeypatch, refusal):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    assert "no remote is known" in refusal(folder, "worker")
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
        names = {run["name"] for run in pages.call("/flow_runs/filter", {"sort": "START_TIME_DESC", "limit": 20})}
        assert {f"default graph: {name}" for name in ("source", "first@f0", "first@f1")} <= names
        assert any(name.startswith("default graph: first, 3 of 3 stages, ") for name in names)
        assert any("first@f1' - epoch 1/1: loss 0.5" in line for line in lines)
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
