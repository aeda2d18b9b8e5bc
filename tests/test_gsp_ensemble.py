import csv
import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from polygrain.retrieval.metrics import score
from polygrain.store import arrays
from stages import gsp_folds
from stages.gsp_ensemble import FORMS, Params, main, summarise
from tests.helpers.small import lists
from tests.test_gsp_folds import FAIR, VALUES, world  # noqa: F401

PARAMS = Params(recall_at=[1, 2], splits=5, ridge=0.05, thumbnail=16)
RUNS = {
    name: {"images": "images/dots", "loss": "c2", "pooling": pooling, "zero_shot": 0.0, "values": {}}
    for name, pooling in (("c2-gap", "gap"), ("c2-gsp", "gsp"))
}
LISTS = lists(gsp_runs=RUNS, gsp={"dots": "images/dots"})


@pytest.fixture(scope="module")
def folds(world, tmp_path_factory):  # noqa: F811
    root = tmp_path_factory.mktemp("folds")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        params = gsp_folds.Params(**(VALUES | {"protocol": FAIR | {"repeats": 2}}))
        for run in RUNS:
            gsp_folds.main(*world, root / run, run=run, params=params, lists=LISTS, seed=0, shape="crop")
    return root


def test_main__scores_every_fold_alone_and_all_combinations(world, folds, tmp_path):  # noqa: F811
    main(world[0], folds, tmp_path / "out", name="dots", params=PARAMS, lists=LISTS, seed=0)
    with (tmp_path / "out/combinations.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["run"] == "c2-gsp"]
    assert [row["combination"] for row in rows if row["form"] == "single"] == ["0-0", "0-1", "1-0", "1-1"]
    assert [row["combination"] for row in rows if row["form"] == "concat"] == ["0-0", "0-1", "1-0", "1-1"]
    parts = [arrays.open(folds / "c2-gsp" / name / "embeddings.zarr")[:] for name in ("0-1", "1-0")]
    labels = np.repeat(np.arange(4, 8), 8)
    expected = score(np.concatenate(parts, 1), labels, np.array(["test"] * 32))["map_at_r"]
    (met,) = [float(r["map_at_r"]) for r in rows if (r["form"], r["combination"]) == ("concat", "1-0")]
    assert met == pytest.approx(expected, abs=1e-6)
    metrics = json.loads((tmp_path / "out/metrics.json").read_text())
    values = [float(row["map_at_r"]) for row in rows if row["form"] == "concat"]
    found = metrics["c2-gsp"]["concat"]["map_at_r"]
    assert found["best"] == max(values)
    assert found["mean"] == pytest.approx(np.mean(values)) and found["std"] == pytest.approx(np.std(values, ddof=1))


def test_main__the_128_d_number_is_the_average_of_the_single_folds_metrics(world, folds, tmp_path):  # noqa: F811
    """As the reference's `separate`: of the chosen folds' metrics, not of their vectors."""
    main(world[0], folds, tmp_path / "out", name="dots", params=PARAMS, lists=LISTS, seed=0)
    with (tmp_path / "out/combinations.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["run"] == "c2-gsp"]
    met = {(row["form"], row["combination"]): float(row["map_at_r"]) for row in rows}
    for choice in ("0-0", "0-1", "1-0", "1-1"):
        parts = [met["single", f"{fold}-{repeat}"] for fold, repeat in enumerate(choice.split("-"))]
        assert met["separate", choice] == pytest.approx(np.mean(parts))
    metrics = json.loads((tmp_path / "out/metrics.json").read_text())["c2-gsp"]
    assert list(metrics) == ["single", "separate", "concat", "mean_vector"]
    assert metrics["separate"]["map_at_r"]["mean"] == pytest.approx(metrics["single"]["map_at_r"]["mean"])
    assert metrics["separate"]["map_at_r"]["mean"] != pytest.approx(metrics["mean_vector"]["map_at_r"]["mean"])
    setting = json.loads((tmp_path / "out/settings.json").read_text())["c2-gsp"]
    assert (setting["embedding"], setting["folds"], setting["protocol"]) == (8, 2, "fair")


def test_summarise__best_is_of_the_row_that_the_choosing_metric_prefers():
    pairs = ((0.2, 0.9), (0.4, 0.1))
    rows = [{"run": "a", "form": form, "combination": "0", "x": x, "y": y} for form in FORMS for x, y in pairs]
    summary = summarise(rows, "x")["concat"]
    assert (summary["x"]["best"], summary["y"]["best"], summary["y"]["max"]) == (0.4, 0.1, 0.9)


def test_main__brings_pictures_histories_and_attributes_along(world, folds, tmp_path):  # noqa: F811
    main(world[0], folds, tmp_path / "out", name="dots", params=PARAMS, lists=LISTS, seed=0)
    tensors = load_file(tmp_path / "out/pictures.safetensors")
    assert tensors["pixels"].shape == (2, 16, 16, 3) and tensors["weights/c2-gap"].shape == (2, 2, 2)
    assert {"nearest/c2-gsp", "attributes/c2-gsp"} <= set(tensors) and "attributes/c2-gap" not in tensors
    assert np.allclose(tensors["attributes/c2-gsp"].sum(1), 1, atol=1e-4)
    assert json.loads((tmp_path / "out/pictures.json").read_text()) == {"classes": ["4", "7"]}
    moved = json.loads((tmp_path / "out/transfer.json").read_text())
    assert list(moved) == ["c2-gsp"] and -1 <= moved["c2-gsp"]["cosine"] <= 1 and moved["c2-gsp"]["chance"] == 0.5
    history = (tmp_path / "out/history.csv").read_text().splitlines()
    assert history[0].startswith("run,fold,repeat,step") and history[1].startswith("c2-gap,0,0,2,")


def test_main__says_which_run_is_damaged(world, folds, tmp_path):  # noqa: F811
    with pytest.raises(ValueError, match=r"config.json is missing or damaged .*; delete .*c2-gap and run the pipe"):
        main(world[0], tmp_path, tmp_path / "out", name="dots", params=PARAMS, lists=LISTS, seed=0)
