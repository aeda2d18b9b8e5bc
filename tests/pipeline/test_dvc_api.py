"""What we take from DVC is as we take it: each test names the call, of DVC, that another release has changed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dvc.exceptions import ConfirmRemoveError
from dvc.rwlock import rwlock
from ruamel.yaml import YAML

from benchmarks import toy
from pipeline import dvc_api, graph, share


@pytest.fixture
def folder(ran, tmp_path, monkeypatch) -> Path:
    """A copy of a repository whose every stage has run, from somewhere else."""
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(ran, tmp_path / "toy")


@pytest.fixture
def opened(folder):
    with dvc_api.opened(folder) as repo:
        yield repo


@pytest.fixture
def stages(opened, folder) -> dict:
    return {stage.name: stage for stage in dvc_api.stages_of(opened, folder / "dvc.yaml")}


@pytest.fixture
def lock(ran) -> dict:
    return YAML(typ="safe").load((ran / "dvc.lock").read_text())["stages"]


def test_Repo__wait_for_lock(ran):
    program = (
        "import sys, time; from pathlib import Path; from pipeline import dvc_api\n"
        "with dvc_api.opened(Path(sys.argv[1])): print('held', flush=True); time.sleep(3.6)"
    )
    command = [sys.executable, "-c", program, str(ran)]
    with subprocess.Popen(command, env=toy.ENVIRONMENT, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        assert len(graph.load(ran)) == 8  # dvc itself would give up after 3 seconds
        assert holder.wait(5) == 0


def test_Repo__the_graph_cannot_be_read(folder):
    (folder / "dvc.yaml").write_text("stages: 1")
    with pytest.raises(ValueError, match="DVC cannot read the graph"), dvc_api.opened(folder) as repo:
        dvc_api.stages_of(repo, folder / "dvc.yaml")


def test_IgnoreInCollectedDirError__and_others_of_the_libraries_below_dvc_are_one_sentence(folder, refusal):
    (folder / "data/source/.dvcignore").touch()
    for command in ("run", "flow", "share", "fetch"):
        words = ["--remote", str(folder)] if command in ("share", "fetch") else []
        said = refusal(folder, command, *words)
        assert said.startswith("error: DVC cannot go on: IgnoreInCollectedDirError: ") and ".dvcignore" in said


def test_rwlock__another_run_is_named_and_no_way_to_break_its_lock(folder):
    """Once, whatever it holds."""
    holder = {"pid": os.getpid(), "cmd": "dvc repro"}
    where = {str(folder / "data/source"): holder, str(folder / "data"): holder}
    (folder / ".dvc/tmp/rwlock").write_text(json.dumps({"read": {}, "write": where}))
    with pytest.raises(ValueError, match=rf"^another run is at work here.*PID {os.getpid()}\): dvc repro$") as refused:
        graph.load(folder)
    assert str(refused.value).count("dvc repro") == 1


def test_ConfirmRemoveError__names_the_folder_and_what_to_do(folder):
    with pytest.raises(ValueError, match="holds what no run has recorded: delete"), dvc_api.opened(folder):
        raise ConfirmRemoveError("/some where")


def test_rwlock__where_the_list_lies_and_how_it_names_processes(opened, folder):
    with rwlock(opened.tmp_dir, opened.fs, "dvc repro", [str(folder / "a")], [], False):
        file = folder / ".dvc/tmp/rwlock"
        assert f'"pid": {os.getpid()}' in file.read_text() and Path(f"{file}.lock").exists()


def test_collect__all_some_and_none(opened, folder):
    def names(*targets):
        return [stage.name for stage in dvc_api.stages_of(opened, folder / "dvc.yaml", targets)]

    assert len(names()) == 8 and names("first") == ["first@f0", "first@f1"] and names("last") == ["last"]
    with pytest.raises(ValueError, match="known here: source, first@f0"):
        names("third")


def test_plan_repro__sources_stand_before_readers(opened, stages):
    found = [stage.name for stage in dvc_api.with_sources(opened, [stages["second@s01"]])]
    assert found == ["source", "first@f1", "second@s01"]


def test_get_active_graph__successors_are_what_a_stage_reads(opened, stages):
    found = dvc_api.sources(opened, [stages["second@s01"], stages["source"]])
    assert found == {stages["second@s01"]: [stages["first@f1"]], stages["source"]: []}


def test_status__by_the_address_of_a_stage(opened, stages, folder):
    assert dvc_api.changed(stages.values()) == dvc_api.changed([]) == {}
    (folder / "data/first/f1/text").write_text("other")
    found = dvc_api.changed(stages.values())
    assert found[stages["first@f1"]] == [{"changed outs": {"data/first/f1": "modified"}}]
    assert found[stages["second@s01"]] == [{"changed deps": {"data/first/f1": "modified"}}] and len(found) == 3


def test_ParamsDependency__values_recorded_and_now(stages, folder):
    file = folder / "params.json"
    file.write_text(file.read_text().replace('"s03": "f1"', '"s03": "f0"'))
    files, values = map(dvc_api.values_of, stages["last"].deps)
    assert files is None and [part["second"]["s03"] for part in values] == ["f1", "f0"]


def test_Config__the_default_remote(folder):
    assert dvc_api.default_remote(folder) is None
    share.use_remote(folder, "/mnt/folder")
    assert dvc_api.default_remote(folder) == (share.REMOTE, "/mnt/folder")


def test_to_single_stage_lockfile__is_what_dvc_lock_holds(stages, lock):
    assert {name: dvc_api.entry_of(stage) for name, stage in stages.items()} == lock


def test_changed_stage__and_changed_deps(stages, folder):
    assert dvc_api.is_recorded(stages["second@s01"])
    (folder / "data/first/f1/text").write_text("other")
    assert not dvc_api.is_recorded(stages["second@s01"])


@pytest.fixture(scope="module")
def sent(ran, tmp_path_factory) -> Path:
    """A folder with a repository that has lost its results, and the remote that has all of them."""
    root = tmp_path_factory.mktemp("sent")
    folder = shutil.copytree(ran, root / "toy")
    share.push(folder, str(root / "remote"))
    for name in ("data", ".dvc/cache"):
        shutil.rmtree(folder / name)
    return root


@pytest.fixture
def shared(sent, tmp_path, monkeypatch) -> Path:
    """A copy of that repository, with a copy of the remote as its own."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(sent, tmp_path, dirs_exist_ok=True)
    share.use_remote(tmp_path / "toy", str(tmp_path / "remote"))
    return tmp_path / "toy"


def test_can_hash_get_stage_hash_and_load_cache__find_the_runs_of_a_remote(shared, lock):
    """And once more here, where the remote has none."""
    with dvc_api.own_config(shared) as config:
        config["remote"]["empty"] = {"url": "/nowhere"}
    for remote in ("team", "empty"):
        with dvc_api.opened(shared) as repo:
            (source,) = dvc_api.stages_of(repo, shared / "dvc.yaml", ["source"])
            assert list(dvc_api.recorded_runs(repo, source, remote)) == [lock["source"]]


def test_create_stage_fill_from_lock_pull_and_checkout__bring_a_result(shared, lock):
    with dvc_api.opened(shared) as repo:
        (source,) = dvc_api.stages_of(repo, shared / "dvc.yaml", ["source"])
        made = dvc_api.with_entry(repo, source, lock["source"])
        assert dvc_api.entry_of(made)["outs"] == lock["source"]["outs"]
        (file,) = dvc_api.bring_lists(repo, made, "team").values()
        assert '"relpath": "text"' in file.read_text()
        assert dvc_api.bring(repo, made, "team", force=False)
    assert (shared / "data/source/text").read_text() == "source\n"


def test_outs_cached__what_the_remote_lacks(shared, lock, tmp_path):
    for file in tmp_path.glob("remote/files/md5/??/*"):
        if file.suffix != ".dir":
            file.unlink()
    with dvc_api.opened(shared) as repo:
        (source,) = dvc_api.stages_of(repo, shared / "dvc.yaml", ["source"])
        made = dvc_api.with_entry(repo, source, lock["source"])
        assert all(dvc_api.bring_lists(repo, made, "team").values())
        assert not dvc_api.bring(repo, made, "team", force=False)


def test_exists__a_list_that_the_remote_lacks(shared, lock, tmp_path):
    shutil.rmtree(tmp_path / "remote/files")
    with dvc_api.opened(shared) as repo:
        (source,) = dvc_api.stages_of(repo, shared / "dvc.yaml", ["source"])
        made = dvc_api.with_entry(repo, source, lock["source"])
        assert dvc_api.bring_lists(repo, made, "team") == {"data/source": None}


def test_save_and_dump__write_dvc_lock(folder, lock):
    (folder / "dvc.lock").unlink()
    with dvc_api.opened(folder) as repo:
        (source,) = dvc_api.stages_of(repo, folder / "dvc.yaml", ["source"])
        dvc_api.record([source])
    assert YAML(typ="safe").load((folder / "dvc.lock").read_text())["stages"] == {"source": lock["source"]}
