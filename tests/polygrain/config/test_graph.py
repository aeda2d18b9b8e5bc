"""What a profile's graph holds of the root's."""

import pytest
from ruamel.yaml import YAML

from polygrain.config.compose import MADE, compose, read_params
from polygrain.config.graph import needed, one, paths_read, used
from tests.helpers.project import ROOT

GRAPH = YAML(typ="safe").load("""
stages:
  source: {cmd: a, deps: ["${path}"], outs: [data/source]}
  first: {cmd: a, deps: [data/source], outs: [data/first], meta: {serves: true}}
  second: {cmd: a, deps: [data/first], outs: [data/second], meta: {serves: true}}
  third: {foreach: "${lists.third}", do: {cmd: a, deps: ["data/${item.reads}"], outs: ["data/third/${key}"]}}
  fourth: {foreach: "${elsewhere}", do: {cmd: a, deps: [data/third], outs: ["data/fourth/${item}": {push: false}]}}
  last: {cmd: a, deps: [data/third, data/fourth, data/source], outs: [data/last]}
artifacts: {model: {path: data/last}}
""")


@pytest.mark.parametrize(
    ("third", "names", "reads"),
    [
        ({}, "source fourth last", ["data/fourth", "data/source"]),
        ({"a": {"reads": "source"}}, "source third fourth last", ["data/third", "data/fourth", "data/source"]),
        ({"a": {"reads": "first"}}, "source first third fourth last", ["data/third", "data/fourth", "data/source"]),
        (
            {"a": {"reads": "second"}},
            "source first second third fourth last",
            ["data/third", "data/fourth", "data/source"],
        ),
    ],
)
def test_used__what_the_values_list_and_what_serves_it(third, names, reads):
    graph = used(GRAPH, {"path": "x", "lists": {"third": third}})
    assert " ".join(graph["stages"]) == names and graph["stages"]["last"]["deps"] == reads
    assert graph["stages"]["fourth"]["do"]["deps"] == (["data/third"] if third else [])
    assert graph["artifacts"] == GRAPH["artifacts"]


def test_used__with_all_branches_on_is_the_graph():
    assert used(GRAPH, {"lists": {"third": {"a": {"reads": "second"}}}}) == GRAPH


def test_needed__drops_what_serves_none():
    assert needed({"a": [], "b": ["a"], "c": [], "d": ["c"], "e": []}, {"a", "b", "c"}) == ["c", "d", "e"]


@pytest.mark.parametrize("profile", ["imagenet100", "mrt-cub", "tll-obj", "gsp-cub", "mrt-photographs"])
def test_used__a_profile_that_ships_reads_nothing_that_no_stage_makes(profile):
    values = compose(ROOT / "profiles" / profile)
    graph = used(read_params(ROOT / "dvc.yaml"), values)["stages"]
    made = {path.partition("/${")[0] for body in graph.values() for path in one(body)["outs"]}
    read = {path for body in graph.values() for path in paths_read(body, values) if MADE.match(path)}
    assert {"data/images", "data/choice"} <= read
    assert all(any((path + "/").startswith(folder + "/") for folder in made) for path in read), read
