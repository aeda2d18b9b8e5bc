"""The graph is DVC's: names, edges, what stages need, what is stale, and in which order."""

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from pipeline import graph
from tests.pipeline import toy


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    return toy.make(tmp_path_factory.mktemp("graph") / "toy")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = toy.make(tmp_path_factory.mktemp("graph") / "toy")
    toy.run(folder, "dvc", "repro")
    return folder


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    """Somewhere else: the graph must not depend on the folder one stands in."""
    monkeypatch.chdir(tmp_path)


def test_command_of__is_what_dvc_would_run(fresh):
    stated = graph.command_of(fresh, "second@s03")
    assert "s03" in " ".join(stated) and all(isinstance(word, str) for word in stated)
    with pytest.raises(ValueError, match=r"unknown stage 'third'; known here: first@f0, .*source"):
        graph.command_of(fresh, "third")


def test_load__names_edges_and_needs(fresh):
    stages = {stage.name: stage for stage in graph.load(fresh)}
    first, second = ["first@f0", "first@f1"], ["second@s00", "second@s01", "second@s02", "second@s03"]
    assert set(stages) == {"source", "last", *first, *second}
    assert stages["source"].upstream == ()
    assert stages["second@s03"].upstream == ("first@f1",)
    assert sorted(stages["last"].upstream) == second
    assert stages["first@f0"].meta == {"gpu": 1} and stages["last"].meta == {}
    assert stages["source"].desc == "what all read"
    assert stages["first@f1"].outs == (fresh / "data/first/f1",)
    assert all(stage.stale for stage in stages.values())


def test_load__sources_come_before_readers_in_dvcs_own_order(done):
    order = [stage.name for stage in graph.load(done)]
    assert order == list(YAML(typ="safe").load((done / "dvc.lock").read_text())["stages"])
    assert not any(stage.stale for stage in graph.load(done))


def test_to_do__the_stale_and_all_that_follow(done):
    output = done / "data/first/f1/text"
    before = output.read_text()
    output.unlink()  # the cache may hold the same inode
    try:
        stages = graph.load(done)
        assert [stage.name for stage in stages if stage.stale] == ["first@f1", "second@s01", "second@s03"]
        assert [stage.name for stage in graph.to_do(stages)] == ["first@f1", "second@s01", "second@s03", "last"]
    finally:
        output.write_text(before)
    assert graph.to_do(graph.load(done)) == []


@pytest.mark.parametrize(
    ("targets", "names"),
    [
        (["second@s01"], {"source", "first@f1", "second@s01"}),
        (["first"], {"source", "first@f0", "first@f1"}),
        (["source", "first@f0"], {"source", "first@f0"}),
    ],
)
def test_load__targets_and_what_they_read_from(fresh, targets, names):
    assert {stage.name for stage in graph.load(fresh, targets)} == names


def test_load__unknown_target(fresh):
    with pytest.raises(ValueError, match=r"unknown target 'third'; known here: source, first@f0, .*last"):
        graph.load(fresh, ["third"])


def test_load__no_repository(tmp_path):
    with pytest.raises(ValueError, match="no DVC repository"):
        graph.load(tmp_path)
    with pytest.raises(ValueError, match=r"no DVC repository: change to the project's folder, or `dvc init`"):
        graph.folder_of(start=tmp_path)


def test_load__a_broken_graph_says_where(tmp_path):
    folder = toy.make(tmp_path / "toy")
    (folder / "dvc.yaml").write_text("stages:\n  a: [b\n")
    with pytest.raises(ValueError, match=r"DVC cannot read the graph: .*dvc.yaml"):
        graph.load(folder)


def test_load__a_loop_is_named(tmp_path):
    folder = toy.make(tmp_path / "toy")
    (folder / "dvc.yaml").write_text(
        "stages:\n  a: {cmd: x, deps: [two], outs: [one]}\n  b: {cmd: x, deps: [one], outs: [two]}\n"
    )
    with pytest.raises(ValueError, match="both a dependency and an output"):
        graph.load(folder)


def test_load__a_profile_beside_the_repositorys_own(fresh, tmp_path):
    folder = toy.make(tmp_path / "toy", first=1, second=1)
    profile = folder / "profiles" / "large"
    profile.mkdir(parents=True)
    (profile / "dvc.yaml").symlink_to("../../dvc.yaml")
    params = json.loads((folder / "params.json").read_text())
    (profile / "params.json").write_text(json.dumps(params | {"second": {"s00": "f0", "s01": "f0"}}))
    assert graph.folder_of("large", folder) == profile
    large = graph.load(profile)
    assert {stage.name for stage in large} == {"source", "first@f0", "second@s00", "second@s01", "last"}
    assert large[0].outs == (profile / "data/source",)
    assert {stage.name for stage in graph.load(folder)} == {"source", "first@f0", "second@s00", "last"}
    for wrong in ("small", "../..", "large/../large"):
        with pytest.raises(ValueError, match=r"unknown profile .*; known here: large"):
            graph.folder_of(wrong, folder)


def test_folder_of__composes_what_the_graph_is_made_of(tmp_path):
    folder = toy.make(tmp_path / "toy")
    (folder / "params.yaml").write_text("root: .\nsections: {a: 1, b: 2}\n")
    for name in ("used", "unused"):
        (folder / "profiles" / name).mkdir(parents=True)
        (folder / "profiles" / name / "values.yaml").write_text("sections: {a: 3}\n")
    used = folder / "profiles/used"
    assert graph.folder_of("used", folder) == used
    assert (used / "dvc.yaml").is_symlink() and "a: 3\n" in (used / "params.yaml").read_text()
    (used / "values.yaml").write_text("sections: {a: 4}\n")
    graph.folder_of("used", folder)
    assert "a: 4\n  b: 2\n" in (used / "params.yaml").read_text()
    # DVC reads the graph of every profile that is linked, whichever is asked for.
    (used / "params.yaml").unlink()
    graph.folder_of(None, folder)
    assert (used / "params.yaml").exists()
    assert not (folder / "profiles/unused/params.yaml").exists()
    (used / "values.yaml").write_text("from: other\n")
    with pytest.raises(ValueError, match=r"from is 'other'; known here, each once: unused, used"):
        graph.folder_of("used", folder)


def test_load__data_that_dvc_tracks_is_a_stage_without_a_name(tmp_path):
    folder = toy.make(tmp_path / "toy")
    (folder / "raw.txt").write_text("raw")
    toy.run(folder, "dvc", "add", "-q", "raw.txt")
    (folder / "dvc.yaml").write_text("stages:\n  a: {cmd: cp raw.txt out, deps: [raw.txt], outs: [out]}\n")
    raw, a = graph.load(folder)
    assert (raw.name, a.name, a.upstream) == ("raw.txt.dvc", "a", ("raw.txt.dvc",))
    assert not raw.stale and a.stale


def test_opened__waits_for_whoever_holds_the_lock(fresh):
    holder = subprocess.Popen(
        ["python", "-c", "import sys, time; from pipeline import graph; from pathlib import Path\n"
         "with graph.opened(Path(sys.argv[1])): print('held', flush=True); time.sleep(3.6)", str(fresh)],
        env=toy.ENVIRONMENT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with holder:
        assert holder.stdout.readline() == "held\n"
        assert len(graph.load(fresh)) == 8  # dvc itself would give up after 3 seconds
        assert holder.wait(1) == 0


def test_folder_of__plain_dvc_keeps_its_pickles_in_the_clone(tmp_path):
    """Wherever in the clone it is called; DVC's own place is a folder that every user of the machine may write to."""
    folder = toy.make(tmp_path / "toy", first=1, second=1)
    graph.folder_of(None, folder)
    (folder / "profiles/x").mkdir(parents=True)
    asked = "from dvc.repo import Repo; print(Repo().site_cache_dir)"
    for place in (folder, folder / "profiles/x"):
        said = toy.run(place, sys.executable, "-c", asked, DVC_SITE_CACHE_DIR="")
        assert Path(said.strip()).is_relative_to(folder / ".dvc/tmp/site")
    assert stat.S_IMODE((folder / ".dvc/tmp/site").stat().st_mode) == 0o700
