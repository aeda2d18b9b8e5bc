import dataclasses
import json

import pytest

from polygrain.mpcl.report.published import Setting
from stages import mpcl_report
from tests.helpers import driven
from tests.helpers.page import assert_loads_nothing
from tests.helpers.small import lists
from tests.test_mpcl_encoder import pretraining

RUNS = {
    "one": pretraining(heads=1, framework="moco_v2", contrast=0, balance="none"),
    "four": pretraining(heads=4, framework="moco_v2", contrast=0.01, balance="literal"),
}


def measures(shift):
    names = ("r_precision", "linear", "fine_0.1")
    spread = {"alignment": 0.5, "uniformity": -1.5, "effective_rank": 7}
    return {"images": 9} | dict.fromkeys(names, 0.25 + shift) | {"fine_0.1_top5": 0.45 + shift} | spread


@pytest.fixture
def world(tmp_path):
    for name in RUNS:
        (tmp_path / "probe" / name).mkdir(parents=True)
        gain = 0.1 if name == "four" else 0.05
        metrics = {"start": {"<b>": measures(0), "bars": measures(0.1)}}
        metrics["trained"] = {"<b>": measures(gain), "bars": measures(0.1 + gain)}
        (tmp_path / "probe" / name / "metrics.json").write_text(json.dumps(metrics))
    return tmp_path / "probe"


def run(world, output, name="four"):
    network = {"architecture": "resnet50"}
    mpcl_report.main(world, output, run=name, lists=lists(mpcl=RUNS), network=network, epochs=200, batch=128)
    return (output / "index.html").read_text()


def test_main__numbers_are_shown_with_their_change_and_the_start_above_the_runs(world, tmp_path):
    text = run(world, tmp_path / "out")
    assert_loads_nothing(text)
    assert "Table III" in text
    assert "from 30.0 to 40.0 %" in text and "+10.0" in text
    assert "&lt;b&gt;" in text and "<b>" not in text
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert metrics["trained"]["mean"]["linear"] == pytest.approx(40)
    assert metrics["trained"]["mean"]["alignment"] == pytest.approx(0.5)
    table = (tmp_path / "out" / "table.md").read_text()
    assert "| linear probe accuracy, trained | 35.0 | 45.0 | 40.0 |" in table
    rows = [line.split(" | ")[:2] for line in table.splitlines() if line.startswith("| ")][-3:]
    assert rows == [["| start", "30.0"], ["| one", "35.0"], ["| four", "40.0"]]


@driven.needed
def test_main__fits_a_phone(world, tmp_path):
    run(world, tmp_path / "out")
    assert driven.out_of_a_phone(tmp_path / "out/index.html") == []


SETTING = Setting(["imagenet100"], "resnet50", 200, 128)


def published(world, **changes):
    found = {name: mpcl_report.read_probe(world / name) for name in RUNS}
    setting = dataclasses.replace(SETTING, **changes)
    return {t["name"]: t for t in mpcl_report.read_published(lists(mpcl=RUNS).mpcl, found, setting)}


def test_read_published__has_the_papers_tables_and_the_very_runs(world):
    tables = published(world)
    assert list(tables) == ["I", "II", "III", "IV", "V", "VI", "VII"]
    rows = tables["III"]["rows"]
    assert rows["M = 4, PCR and PTB"]["values"] == {"parameters, M": "28.75", "linear top-1": "79.18"}
    assert rows["M = 4, PCR and PTB"]["run"] == "four" and rows["M = 4, PCR and PTB"]["ours"] == {
        "linear top-1": pytest.approx(40)
    }
    assert rows["M = 1"]["run"] == "one" and rows["M = 4, PCR"]["run"] is None
    assert tables["I"]["rows"]["one projector"]["ours"]["1 - alignment"] == pytest.approx(0.5)
    assert tables["IV"]["rows"]["MoCo v2"]["run"] is None and tables["IV"]["rows"]["Align"]["run"] is None
    tables = published(world, tasks=["imagenet"], batch=256)
    assert tables["IV"]["rows"]["MoCo v2"]["run"] == "one" and tables["III"]["rows"]["M = 1"]["run"] is None
    few = tables["V"]["rows"]["MoCo v2"]["ours"]
    assert few["10 %, top-1"] == pytest.approx(35) and few["10 %, top-5"] == pytest.approx(55)


def test_main__nothing_measured(world, tmp_path):
    for name in RUNS:
        (world / name / "metrics.json").write_text('{"start": {}, "trained": {}}')
    assert "Nothing was measured" in run(world, tmp_path / "out")
    (world / "four" / "metrics.json").write_text("{")
    with pytest.raises(ValueError, match=r"metrics\.json"):
        run(world, tmp_path / "out")
