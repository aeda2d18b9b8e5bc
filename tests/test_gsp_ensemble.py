import csv
import json
from itertools import product

import numpy as np
import pytest
from safetensors.numpy import load_file

from polygrain.retrieval.metrics import score
from polygrain.store import arrays
from stages import gsp_folds
from stages.gsp_ensemble import FORMS, Params, histograms, main, summarise
from tests.helpers.small import lists
from tests.test_gsp_folds import VALUES, world  # noqa: F401

PARAMS = Params(recall_at=[1, 2], splits=5)
RUNS = {
    name: {"images": "images/dots", "loss": "c2", "pooling": pooling, "zero_shot": 0.0, "values": {}}
    for name, pooling in (("c2-gap", "gap"), ("c2-gsp", "gsp"))
}
TRAININGS = {
    f"{run}-{fold}-{repeat}": {"run": run, "images": "images/dots", "fold": fold, "repeat": repeat}
    for run, fold, repeat in product(RUNS, range(2), range(2))
}
LISTS = lists(gsp_runs=RUNS, gsp_trainings=TRAININGS, gsp={"dots": "images/dots"})


@pytest.fixture(scope="module")
def folds(world, tmp_path_factory):  # noqa: F811
    root = tmp_path_factory.mktemp("folds")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        params = gsp_folds.Params(**VALUES)
        for name in TRAININGS:
            gsp_folds.main(*world, root / name, training=name, params=params, lists=LISTS, seed=0, shape="crop")
    main(world[0], root, root / "out", name="dots", params=PARAMS, lists=LISTS, seed=0)
    return root


def read(folds, name):
    return json.loads((folds / f"out/{name}.json").read_text())


def rows_of(folds):
    """The rows of c2-gsp, by form and combination."""
    with (folds / "out/combinations.csv").open() as file:
        return {(row["form"], row["combination"]): row for row in csv.DictReader(file) if row["run"] == "c2-gsp"}


CHOICES = ["0-0", "0-1", "1-0", "1-1"]


def test_main__scores_every_fold_and_all_combinations(folds):
    rows = rows_of(folds)
    assert list(rows) == [("single", name) for name in CHOICES] + [
        (form, name) for name in CHOICES for form in FORMS[1:]
    ]
    parts = [arrays.open(folds / f"c2-gsp-{name}" / "embeddings.zarr")[:] for name in ("0-1", "1-0")]
    expected = score(np.concatenate(parts, 1), np.repeat(np.arange(4, 8), 8), np.array(["test"] * 32))["map_at_r"]
    assert float(rows["concat", "1-0"]["map_at_r"]) == pytest.approx(expected, abs=1e-6)
    values = [float(rows["concat", choice]["map_at_r"]) for choice in CHOICES]
    result = read(folds, "metrics")["c2-gsp"]["concat"]["map_at_r"]
    assert result["best"] == max(values)
    assert result["mean"] == pytest.approx(np.mean(values)) and result["std"] == pytest.approx(np.std(values, ddof=1))


def test_summarise__best_is_of_the_row_that_the_choosing_metric_prefers():
    pairs = ((0.2, 0.9), (0.4, 0.1))
    rows = [{"run": "a", "form": form, "combination": "0", "x": x, "y": y} for form in FORMS for x, y in pairs]
    summary = summarise(rows, "x")["concat"]
    assert (summary["x"]["best"], summary["y"]["best"], summary["y"]["max"]) == (0.4, 0.1, 0.9)


def test_histograms__are_plain_means_of_ten_classes_from_the_first_to_the_last():
    rng, names = np.random.default_rng(0), [f"class{i}" for i in range(30)]
    labels, attributes = rng.permutation(np.repeat(np.arange(1, 20), 3)), rng.random((57, 4), np.float32)
    shown = histograms(attributes, labels, names)
    assert len(shown) == 10 and list(shown)[::9] == ["class1", "class19"]
    for name, shares in shown.items():
        own = [attributes[i] for i in range(57) if names[labels[i]] == name]
        assert shares == pytest.approx([sum(row[k] for row in own) / 3 for k in range(4)], rel=1e-5)
    assert list(histograms(attributes[:6], np.array([7, 7, 5, 5, 7, 5]), names)) == ["class5", "class7"]


def test_main__writes_pictures_histories_and_the_transfer_of_attributes(folds):
    tensors = load_file(folds / "out/pictures.safetensors")
    assert tensors["pixels"].shape[0] == 4 and tensors["weights/c2-gap"].shape == (4, 2, 2)
    assert "nearest/c2-gsp" in tensors and "nearest/c2-gap" not in tensors
    assert read(folds, "pictures") == {"classes": list("4567")} and read(folds, "settings")["c2-gsp"]["embedding"] == 8
    transfers = read(folds, "transfer")
    assert list(transfers) == ["c2-gsp"] and 0 < transfers["c2-gsp"]["map_by_distance"] <= 1
    shares = transfers["c2-gsp"]["attributes"]
    assert list(shares) == list("4567") and all(sum(share) == pytest.approx(1, abs=1e-4) for share in shares.values())
    history = (folds / "out/history.csv").read_text().splitlines()
    assert history[0].startswith("run,fold,repeat,step") and history[1].startswith("c2-gap,0,0,2,")
