import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from polygrain.gsp.report.contents import histograms
from polygrain.gsp.report.published import Claim
from stages.gsp_report import Params, main, pairs
from tests.helpers import driven
from tests.helpers.page import assert_loads_nothing
from tests.helpers.small import lists

PARAMS = Params(published=None)


def spec(loss, pooling, zero_shot=0.0):
    return {"images": "images/dots", "loss": loss, "pooling": pooling, "zero_shot": zero_shot, "values": {}}


LISTS = lists(
    gsp_runs={"c2-gap": spec("c2", "gap"), "c2-gsp": spec("c2", "gsp", 0.1), "ms-gsp": spec("ms", "gsp")},
    gsp={"dots": "images/dots"},
)
SETTING = {"protocol": "fair", "chosen_by": "map_at_r", "network": "resnet50.tv_in1k", "embedding": 128, "folds": 4}
SETTING |= {"values": {"prototypes": 64, "mu": 0.3, "epsilon": 5.0}}


@pytest.fixture
def ensemble(tmp_path):
    folder = tmp_path / "ensemble"
    folder.mkdir()
    names, forms = ("map_at_r", "r_precision", "recall_at_1", "recall_at_2"), ("single", "separate", "concat")
    metrics = {
        run: {
            form: {name: {"mean": 0.1 * (i + 1), "std": 0.01, "min": 0.0, "max": 0.5, "best": 0.5} for name in names}
            for form in forms
        }
        for i, run in enumerate(LISTS.gsp_runs)
    }
    shares = {f"map_by_{measure}": 0.5 for measure in ("distance", "cosine")}
    spreads = {f"spread_by_{measure}": {"0.4": 0.5, "0.6": 0.5} for measure in ("distance", "cosine")}
    transfer = {"c2-gsp": {"distance": 1.234, "cosine": 0.25} | shares | spreads}
    transfer["c2-gsp"]["attributes"] = {"a&b": [0.75, 0.25], "c": [0.5, 0.5]}
    files = {"metrics": metrics, "settings": dict.fromkeys(LISTS.gsp_runs, SETTING), "transfer": transfer}
    for name, content in (files | {"pictures": {"classes": ["a&b"]}}).items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    lines = [f"{run},0,0,{step},1.0,0.{step},1" for run in LISTS.gsp_runs for step in (10, 20)]
    (folder / "history.csv").write_text("\n".join(["run,fold,repeat,step,loss,map_at_r,rate", *lines]) + "\n")
    tensors = {f"weights/{run}": np.full((1, 2, 2), 0.25, np.float32) for run in LISTS.gsp_runs}
    tensors |= {"pixels": np.zeros((1, 16, 16, 3), np.uint8), "nearest/c2-gsp": np.zeros((1, 2, 2), np.int16)}
    save_file(tensors, folder / "pictures.safetensors")
    return folder


def test_main__one_page_that_loads_nothing(ensemble, tmp_path):
    for name in ("out", "again"):
        main(ensemble, tmp_path / name, name="dots", params=PARAMS, lists=LISTS)
    page, table = ((tmp_path / "out" / name).read_text() for name in ("index.html", "table.md"))
    assert_loads_nothing(page)
    assert "a&amp;b" in page and "20.00 % and 10.00 %" in page and "+10.0 points" in page
    assert page.count("<svg") == 5  # a training chart per loss, two of how attributes predict, the prototypes by class
    assert "a&amp;b, prototype 1: 75.0 %" in page
    assert "c2-gap 20.0, c2-gsp 20.0" in page and "ms-gsp 20.0" in page  # the best of each history
    assert "<td>1.23</td>" in page  # what attributes predict
    assert page.count("MAP of unmet classes by") == 4  # a title and a label each
    for text in (page, table):
        assert "512-D here" in text and "resnet50.tv_in1k" in text and "Published beside ours" not in text
    assert "| c2-gsp | 20.00 ± 1.00 |" in table
    assert json.loads((tmp_path / "out/metrics.json").read_text())["ms-gsp"]["concat"]["map_at_r"] == 30
    assert (tmp_path / "again/index.html").read_text() == page


@driven.needed
def test_main__fits_a_phone(ensemble, tmp_path):
    main(ensemble, tmp_path / "out", name="dots", params=PARAMS, lists=LISTS)
    assert driven.out_of_a_phone(tmp_path / "out/index.html") == []


def test_main__each_printed_number_beside_the_run_of_its_kind(ensemble, tmp_path):
    params = PARAMS.model_copy(update={"published": Claim(tables=[2], network="bn_inception")})
    runs = {name: run.model_copy(update={"images": "images/cub"}) for name, run in LISTS.gsp_runs.items()}
    listed = LISTS.model_copy(update={"gsp_runs": runs, "gsp": {"birds": "images/cub"}})
    main(ensemble, tmp_path / "out", name="birds", params=params, lists=listed)
    page = (tmp_path / "out/index.html").read_text()
    assert page.count("s is BN-Inception.") == 2
    assert page.count('<th scope="row">2</th><td>c2-gsp</td>') == 4  # two metrics of 128-D, two of 512-D
    assert page.count('<th scope="row">2</th><td>none</td>') == 32 - 8  # of c2: the paper prints no number for "ms"
    settings = dict.fromkeys(LISTS.gsp_runs, SETTING | {"protocol": "tuning"})
    (ensemble / "settings.json").write_text(json.dumps(settings))
    main(ensemble, tmp_path / "tuned", name="birds", params=params, lists=listed)
    page = (tmp_path / "tuned/index.html").read_text()
    assert "<td>c2-gsp</td><td>fair" not in page and "held-out training classes (validation)" in page


def test_histograms__show_the_prototypes_that_differ_most():
    shares = np.full((2, 30), 1 / 30)
    shares[0, [2, 28]] += [0.01, -0.01]
    row = {"attributes": dict(zip("ab", shares.tolist(), strict=True))}
    (chart,) = histograms({"c2-gsp": row})
    for number in range(1, 31):
        spread = max(shares[:, number - 1]) - min(shares[:, number - 1])
        rank = sum(max(column) - min(column) > spread for column in shares.T)
        is_shown = rank == 0 or number in [1, 2, *range(4, 24)]  # the other 22 are alike
        assert (f"a, prototype {number}: {100 * shares[0, number - 1]:.1f} %" in chart["drawing"]) == is_shown, number


def test_pairs__compare_with_the_mean_of_the_same_loss():
    assert pairs(dict(LISTS.gsp_runs)) == [("c2-gsp", "c2-gap")]
