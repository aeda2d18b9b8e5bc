"""The graph is DVC's: names, edges, what stages need, what is stale, and in which order."""

import json
import shutil

import pytest

from pipeline import dvc_api, graph, prepare
from tests.helpers import toy


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    """Somewhere else: the graph must not depend on the folder one stands in."""
    monkeypatch.chdir(tmp_path)


def test_load__names_edges_and_needs(ran):
    stages = {stage.name: stage for stage in graph.load(ran)}
    first, second = ["first@f0", "first@f1"], ["second@s00", "second@s01", "second@s02", "second@s03"]
    assert set(stages) == {"source", "last", *first, *second}
    assert stages["source"].upstream == () and stages["second@s03"].upstream == ("first@f1",)
    assert sorted(stages["last"].upstream) == second
    assert stages["first@f0"].meta == {"gpu": 1} and stages["last"].meta == {}
    order = list(stages)
    assert all(order.index(up) < order.index(name) for name, stage in stages.items() for up in stage.upstream)


def test_changed__parses_each_file_of_values_once(ran, monkeypatch):
    parsed, load = [], dvc_api.param.load_path
    monkeypatch.setattr(dvc_api.param, "load_path", lambda path, *words: parsed.append(path) or load(path, *words))
    assert len(graph.load(ran)) == 8
    assert parsed and len(parsed) == len(set(parsed))


def test_to_do__the_stale_and_all_that_follow(ran, tmp_path):
    assert graph.to_do(graph.load(ran)) == []
    folder = shutil.copytree(ran, tmp_path / "toy")
    (folder / "data/first/f1/text").unlink()
    stages = graph.load(folder)
    assert [stage.name for stage in stages if stage.stale] == ["first@f1", "second@s01", "second@s03"]
    assert {stage.name: stage.why for stage in graph.to_do(stages)} == {
        "first@f1": "data/first/f1 is modified",
        "second@s01": "data/first/f1 is modified",
        "second@s03": "data/first/f1 is modified",
        "last": "after second@s01, second@s03",
    }


def test_load__why_a_stage_is_stale(ran, tmp_path):
    folder = shutil.copytree(ran, tmp_path / "toy")
    file = folder / "params.json"
    params = json.loads(file.read_text())
    params["second"] |= {"s00": "f1", "s04": "f0"}
    file.write_text(json.dumps(params))
    (folder / "data/source/text").write_text("other")
    why = {stage.name: stage.why for stage in graph.to_do(graph.load(folder))}
    assert why["source"] == "data/source is modified" and why["first@f0"] == why["source"]
    assert why["second@s00"] == "its command has changed, data/first/f1 is modified"
    assert why["second@s01"] == "after first@f1" and why["last"] == "second.s00 f0 -> f1, second.s04 None -> f0"
    assert list(graph.by_cause(graph.to_do(graph.load(folder)))) == [
        "data/source is modified: source, first (2)",
        "its command has changed: second@s00",
        "data/first/f1 is modified: second@s00",
        "never run here: second@s04",
        "second.s00 f0 -> f1: last",
        "second.s04 None -> f0: last",
        "then: second (3)",
    ]
    fresh = graph.load(toy.make(tmp_path / "fresh"))
    assert list(graph.by_cause(fresh)) == ["never run here: source, first (2), second (4), last"]


def test_load__targets_and_what_they_read_from(ran):
    def names(*targets):
        return {stage.name for stage in graph.load(ran, targets)}

    assert names("second@s01") == {"source", "first@f1", "second@s01"}
    assert names("first") == {"source", "first@f0", "first@f1"}
    assert names("source", "first@f0") == {"source", "first@f0"}
    words = {"other": "; known here: source, first, second, last$", "secnd": "; did you mean second?"}
    for word, message in (words | {"first@f7": "did you mean first@f"}).items():
        with pytest.raises(ValueError, match=f"no stage '{word}' in .*{message}"):
            names(word)


def test_load__no_repository_and_a_broken_graph(tmp_path):
    with pytest.raises(ValueError, match="is in no project"):
        graph.folder_of(start=tmp_path)
    folder = toy.make(tmp_path / "toy")
    (folder / "dvc.yaml").write_text("stages:\n  a: [b\n")
    with pytest.raises(ValueError, match=r"DVC cannot read the graph: .*dvc.yaml"):
        graph.load(folder)


def test_load__a_profile_beside_the_repositorys_own(tmp_path):
    """It is linked and composed when it is asked for; DVC reads every linked graph, so each needs its values."""
    folder = toy.make(tmp_path / "toy", first=1, second=1)
    (folder / "params.yaml").write_text("root: .\nsections: {a: 1, b: 2}\n")
    params = json.loads((folder / "params.json").read_text()) | {"second": {"s00": "f0", "s01": "f0"}}
    for name in ("large", "unused"):
        (folder / "profiles" / name).mkdir(parents=True)
        (folder / "profiles" / name / "values.yaml").write_text("sections: {a: 3}\n")
        (folder / "profiles" / name / "params.json").write_text(json.dumps(params))
    large = prepare.ready("large", folder)
    assert large == folder / "profiles/large" and "a: 3\n" in (large / "params.yaml").read_text()
    stages = graph.load(large)
    assert {stage.name for stage in stages} == {"source", "first@f0", "second@s00", "second@s01", "last"}
    (large / "params.yaml").unlink()
    stages = graph.load(prepare.ready(None, folder))
    assert {stage.name for stage in stages} == {"source", "first@f0", "second@s00", "last"}
    assert (large / "params.yaml").exists() and not (folder / "profiles/unused/params.yaml").exists()
    (folder / "profiles/paper").mkdir()
    (folder / "profiles/paper/family.yaml").write_text("listed: {}\n")
    for name, word in {"large": "profiles/large/", "listed": "listed"}.items():
        with pytest.raises(ValueError, match=f"^{name} is a profile: --profile {name}$"):
            graph.load(folder, [word])
    with pytest.raises(ValueError, match=r"unknown profile 'larg'; did you mean large\?"):
        graph.folder_of("larg", folder)
    assert graph.folder_of("listed", folder) == folder / "profiles/listed"
    for name in ("small", "paper"):
        with pytest.raises(ValueError, match=r"unknown profile .*; known here: large, unused, listed"):
            graph.folder_of(name, folder)


def test_load__data_that_dvc_tracks_is_a_stage_without_a_name(tmp_path):
    folder = toy.make(tmp_path / "toy")
    (folder / "raw.txt").write_text("raw")
    toy.run(folder, "dvc", "add", "-q", "raw.txt")
    (folder / "dvc.yaml").write_text("stages:\n  a: {cmd: cp raw.txt out, deps: [raw.txt], outs: [out]}\n")
    raw, a = graph.load(folder)
    assert (raw.name, a.name, a.upstream) == ("raw.txt.dvc", "a", ("raw.txt.dvc",))
    assert not raw.stale and a.stale
