import json
import re

import pytest

from polygrain.tll.extractors import published
from stages import tll_report
from tests.helpers import driven
from tests.helpers.page import assert_loads_nothing
from tests.helpers.pairs import PCA, paint, run, study


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    raw = paint(folder / "raw")
    return run(folder / "data", raw), raw


def make(data, output, lists):
    folders = data / "tll_pairs/own", data / "tll_adaptation", output
    return tll_report.main(*folders, study="own", lists=lists)


def test_main__the_page_stands_alone_and_says_it_all(data, tmp_path):
    make(data[0], tmp_path / "out", study(data[1]))
    page = (tmp_path / "out/index.html").read_text()
    for text in ("Concatenated", "PCA", "σ = 1", "σ = 15", "aR@5", "clip_rn50x4", "37 extractors"):
        assert text in page, text
    assert_loads_nothing(page)
    assert page.count('<figure class="query"') <= 8 and "data:image/jpeg;base64," in page
    assert "nan" not in page.lower().replace("tenancy", "")
    assert "fitted on its training pairs alone" in page and "Transductive" not in page
    metrics = json.loads((tmp_path / "out/metrics.json").read_text())
    assert set(metrics) == {"concatenated", "pca", "sigma_1", "sigma_15"}
    assert "best_recall_at_1_chosen_on_test" in metrics["sigma_15"] and 0 <= metrics["pca"]["recall_at_1"] <= 100
    assert "| PCA |" in (tmp_path / "out/table.md").read_text()


@driven.needed
def test_main__fits_a_phone(data, tmp_path):
    make(data[0], tmp_path / "out", study(data[1]))
    assert driven.out_of_a_phone(tmp_path / "out/index.html") == []


def test_main__a_study_of_the_published_pairs_has_the_printed_row_below(data, tmp_path, monkeypatch):
    summary = json.loads((data[0] / "tll_adaptation/own/summary.json").read_text())
    monkeypatch.setattr(published, "PAIRS", summary["pairs"])
    extractor = study(data[1]).tll["own"].extractor
    rows = [row | {"name": extractor} if row["name"] == "barlow" else row for row in published.rows()]
    monkeypatch.setattr(published, "rows", lambda: rows)
    make(data[0], tmp_path / "out", study(data[1]))
    (printed,) = re.findall("own, published.*?</tr>", (tmp_path / "out/index.html").read_text(), re.DOTALL)
    assert [text in printed for text in ("75.5", "13.9 <small>± 1.1", "13.6</td>", "17.8 <small>± 0.4")] == [True] * 4


def test_main__one_run_and_the_transductive_fit(tmp_path):
    raw = paint(tmp_path / "raw")
    data = run(tmp_path / "data", raw, pca=PCA.model_copy(update={"runs": 1, "fit": "all"}))
    make(data, tmp_path / "out", study(raw))
    page = (tmp_path / "out/index.html").read_text()
    assert "Transductive:" in page and "nan" not in page.lower()
    assert "deviation_at_1" not in json.loads((tmp_path / "out/metrics.json").read_text())["pca"]


def test_main__raise_where_a_study_of_the_list_is_missing(data, tmp_path):
    given = study(data[1])
    given = given.model_copy(update={"tll": given.tll | {"other": given.tll["own"]}})
    with pytest.raises(ValueError, match="other"):
        make(data[0], tmp_path / "out", given)
    assert not (tmp_path / "out").exists()
