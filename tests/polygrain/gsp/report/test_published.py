import functools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from polygrain.config.compose import compose, listed
from polygrain.config.items.gsp import Classifier, Run
from polygrain.gsp.report import published
from polygrain.gsp.report.published import Claim
from stages import gsp_classifier, gsp_folds
from tests.helpers.project import ROOT

CLASSIFIERS = "gsp-imagenet"
PROFILES = sorted({name for name in listed(ROOT / "profiles") if name.startswith("gsp-")} - {CLASSIFIERS})
GSP = {"prototypes": 64, "mu": 0.3, "epsilon": 5.0}
SETTING = {"protocol": "fair", "network": "resnet50.tv_in1k", "embedding": 128, "folds": 4, "values": GSP}


@functools.cache
def composed(profile):
    return compose(ROOT / "profiles" / profile)


def make_run(pooling="gsp", zero_shot=0.1, loss="c2"):
    return Run(images="images/cub", loss=loss, pooling=pooling, zero_shot=zero_shot, values={})


def row_of(table=2, **key):
    """The one printed row on CUB in BN-Inception with these values."""
    key = {"loss": "c2", "pooling": "gsp", "metric": "map_at_r"} | key
    key |= {"table": str(table), "images": "cub", "network": "bn_inception"}
    (row,) = [row for row in published.read() if all(row[name] == value for name, value in key.items())]
    return row


def test_read__the_tables_are_whole_and_agree_where_they_overlap():
    rows = published.read()
    assert Counter(row["table"] for row in rows) == {"1": 32, "2": 400, "3": 83, "4": 32, "5": 12, "6": 84, "7": 18}
    assert all(0 < float(row["percent"]) < 100 for row in rows)
    assert all((row["table"] == "2") == bool(row["deviation"]) for row in rows)
    keys = Counter(tuple(value for name, value in row.items() if name not in ("percent", "note")) for row in rows)
    assert {key for key, count in keys.items() if count > 1} == {key for key in keys if "marks are lost" in key[-1]}


def test_is_of__one_fold_is_128_d_and_all_folds_are_512_d():
    for dim, form in (("128", "separate"), ("512", "concat")):
        row = row_of(dim=dim)
        assert published.is_of(row, make_run(), SETTING)
        assert published.form_of(row, SETTING) == form
    assert published.form_of(row, SETTING | {"embedding": 64, "folds": 2}) is None


@pytest.mark.parametrize(
    ("run", "change"),
    [
        (make_run(zero_shot=0.0), {}),
        (make_run(), {"values": GSP | {"mu": 1.0}}),
        (make_run(pooling="gmp_gsp"), {}),
        (make_run(loss="c1"), {}),
        (make_run(), {"protocol": "tuning"}),
        (make_run(), {"embedding": 64}),
    ],
)
def test_is_of__not_a_run_that_differs_in_one_thing(run, change):
    assert not published.is_of(row_of(dim="128"), run, SETTING | change)


def test_compare__the_mean_of_fair_runs_and_the_best_of_conventional_ones():
    metrics = {"a": {"concat": {"map_at_r": {"mean": 0.2, "best": 0.3}}, "separate": {"map_at_r": {"best": 0.4}}}}
    rows = [row_of(dim="512"), row_of(dim="512", metric="recall_at_1")]
    lines = published.compare(rows, {"a": make_run()}, {"a": SETTING}, metrics)
    assert [(line["run"], line["percent"]) for line in lines] == [("a", 27.12), ("a", 68.85)]
    assert lines[0]["ours"] == pytest.approx(20) and np.isnan(lines[1]["ours"])
    assert [(line["deviation"], line["within"]) for line in lines] == [(0.27, "no"), (0.41, "")]
    best = row_of(3, loss="xbm", pooling="gmp_gsp")
    setting = SETTING | {"protocol": "conventional", "embedding": 512, "folds": 1}
    (line,) = published.compare([best], {"a": make_run("gmp_gsp", loss="xbm")}, {"a": setting}, metrics)
    assert line["ours"] == pytest.approx(40) and line["statistic"] == "best"
    (line,) = published.compare([best], {}, {}, metrics)
    assert line["run"] is None and np.isnan(line["ours"])


PARTS = ("gsp-cifar-fig3b",)  # of a table: the page says of its other rows that no run stands beside them


def claimed_rows(values):
    """A profile's printed rows."""
    folder = next(iter(values["gsp"].values()), "")  # studies alone have no page of runs
    claim, losses = values["gsp_report"]["published"], {run["loss"] for run in values["gsp_runs"].values()}
    return published.claimed(Claim(**claim), Path(folder).name, losses) if claim else []


@pytest.mark.parametrize("profile", PROFILES)
def test_profiles__each_claimed_row_is_of_one_run_and_its_metric_is_measured(profile):
    values = composed(profile)
    folds = gsp_folds.Params(**values["gsp_folds"])
    runs = {name: Run(**run) for name, run in values["gsp_runs"].items()}
    settings = {name: gsp_folds.setting_of(run, folds) for name, run in runs.items()}
    measured = {"map_at_r", *(f"recall_at_{k}" for k in values["gsp_ensemble"]["recall_at"])}
    for row in claimed_rows(values):
        found = [name for name, run in runs.items() if published.is_of(row, run, settings[name])]
        assert len(found) == 1 or (not found and profile in PARTS), row
        assert row["metric"] in measured


def test_profiles__together_claim_every_row_that_is_not_open():
    claimed = {tuple(row.values()) for profile in PROFILES for row in claimed_rows(composed(profile))}
    unclaimed = [row for row in published.read() if not row["open"] and tuple(row.values()) not in claimed]
    assert {row["table"] for row in unclaimed} == {"5"}  # of classifiers


def test_profiles__each_row_of_table_5_is_of_one_classifier():
    values, rows = composed(CLASSIFIERS), []
    params = gsp_classifier.Params(**values["gsp_classifier"])
    for item in values["gsp_classifiers"].values():
        spec = Classifier(**item)
        rows += gsp_classifier.printed_of(spec, params.poolings[spec.pooling], params.embedding)
    printed = [row["percent"] for row in published.read() if row["table"] == "5"]
    assert sorted(row["percent"] for row in rows) == sorted(printed)
