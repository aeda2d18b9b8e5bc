import json

import pytest
from ruamel.yaml import YAML

from polygrain.store import work
from stages.gsp_study import Params, main
from tests.helpers.project import ROOT
from tests.helpers.small import lists

VALUES = YAML(typ="safe").load((ROOT / "params.yaml").read_text())["gsp_study"]
LISTS = lists(gsp_studies={"bags": "tokens", "map": "toy"})


@pytest.fixture(autouse=True)
def in_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def params():
    stopping = VALUES["tokens"]["stopping"] | {"every": 5, "longest": 10}
    small = VALUES["tokens"] | {"unseen": 4, "per_class": 2, "stopping": stopping}
    return Params.model_validate(VALUES | {"tokens": small})


def test_main__tokens_are_the_same_bytes_twice(tmp_path, params):
    for name in ("a", "b"):
        main(tmp_path / name, study="bags", params=params, lists=LISTS, seed=0)
        work.clear()  # as the command does
    assert all((tmp_path / "a" / f.name).read_bytes() == f.read_bytes() for f in (tmp_path / "b").iterdir())
    metrics = json.loads((tmp_path / "a/metrics.json").read_text())
    assert list(metrics) == ["gap", "gsp", "gsp-zs"] and all(0 < v["map_at_r"] <= 100 for v in metrics.values())
    assert (tmp_path / "a/history.csv").read_text().count("gsp-zs,") == 2


def test_main__the_toy_map_shows_a_picture_of_each_selection_and_none_of_the_mean(tmp_path, params):
    main(tmp_path / "toy", study="map", params=params, lists=LISTS, seed=0)
    metrics = json.loads((tmp_path / "toy/metrics.json").read_text())
    shares = [entry["object"] for entry in metrics.values()]
    selections = [name for name in metrics if not name.startswith("mu 1,")]
    assert shares[1::2] == sorted(shares[1::2], reverse=True) and shares[0] > 99
    assert (tmp_path / "toy/index.html").read_text().count("<img") == 1 + len(selections) == 7


@pytest.mark.slow
def test_main__selection_beats_the_mean_on_tokens(tmp_path):
    main(tmp_path / "out", study="bags", params=Params.model_validate(VALUES), lists=LISTS, seed=0)
    metrics = json.loads((tmp_path / "out/metrics.json").read_text())
    assert metrics["gsp"]["map_at_r"] > metrics["gap"]["map_at_r"] + 5
