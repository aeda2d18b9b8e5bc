import csv
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch.nn.functional import normalize

from polygrain.store import arrays
from polygrain.tll.adaptation import descriptors, reduction
from stages import tll_adaptation
from tests.helpers.pairs import ADAPTATION, FEATURES, paint, plain_recall, run


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adaptation")
    return run(folder / "data", paint(folder / "raw"), features=FEATURES.model_copy(update={"flips": True}))


def recalls(folder, row, at="last"):
    table = pq.read_table(folder / "recall.parquet").to_pylist()
    runs = sorted({entry["run"] for entry in table})
    return [[e["recall"] for e in table if (e["row"], e["at"], e["run"]) == (row, at, run)] for run in runs]


def test_main__baselines_are_cosines_on_each_runs_test_pairs(data):
    known = descriptors.read(data / "tll_features/own").values[0]
    fits, splits = (
        reduction.load(data / "tll_pca/own/pca.safetensors"),
        arrays.open(data / "tll_pca/own/splits.zarr")[:],
    )
    for row in ("concatenated", "pca"):
        for number, values in enumerate(recalls(data / "tll_adaptation/own", row)):
            sides = [side[splits[number]] for side in known]
            if row == "pca":
                sides = [fits[number].apply(side) for side in sides]
            left, right = (normalize(torch.from_numpy(side), dim=1) for side in sides)
            np.testing.assert_allclose(values, plain_recall(left @ right.T, range(1, 6)))


def test_main__tables_agree(data):
    folder = data / "tll_adaptation/own"
    ranks = pq.read_table(folder / "ranks.parquet").to_pylist()
    for row in ("concatenated", "pca", "sigma_1", "sigma_15"):
        for number, values in enumerate(recalls(folder, row)):
            ranked = [e["rank"] for e in ranks if (e["row"], e["run"]) == (row, number)]
            assert len(ranked) == 6
            assert values == pytest.approx([np.mean([rank <= k for rank in ranked]) for k in range(1, 6)])
    with (folder / "history.csv").open(newline="") as lines:
        history = list(csv.DictReader(lines))
    assert [(entry["row"], entry["step"]) for entry in history[:3]] == [("sigma_1", s) for s in "246"]
    last = {entry["row"]: float(entry["recall_at_1"]) for entry in history}
    for row, value in last.items():
        assert value == pytest.approx(np.mean([values[0] for values in recalls(folder, row)]), rel=1e-5)
        best = max(float(entry["recall_at_1"]) for entry in history if entry["row"] == row)
        assert np.mean([values[0] for values in recalls(folder, row, "best")]) == pytest.approx(best, rel=1e-5)
    assert float(history[5]["loss"]) < float(history[3]["loss"])
    assert json.loads((folder / "summary.json").read_text())["layers"] == ["blocks.0", "blocks.1"]


def test_main__twice_the_same_bytes(data, tmp_path):
    folders = (data / "tll_features/own", data / "tll_pca/own", tmp_path / "again")
    tll_adaptation.main(*folders, study="own", params=ADAPTATION, seed=0, shape="crop")
    first = data / "tll_adaptation/own"
    for file in (file for file in first.rglob("*") if file.is_file()):
        assert file.read_bytes() == (tmp_path / "again" / file.relative_to(first)).read_bytes(), file
