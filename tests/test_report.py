"""The report drawn from a small world in the formats that the other stages write."""

import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polygrain.config.lists import Lists
from polygrain.findings.scores import METRICS
from polygrain.store import arrays
from polygrain.store.image_table import TABLE
from polygrain.store.tables import read_csv, write_csv
from stages import report
from tests.helpers import driven
from tests.helpers.page import Page, assert_loads_nothing
from tests.helpers.report_world import FUSIONS, World, lists_of, write_choice

VALUES = {
    "pixels": {"one": 0.2, "two": 0.3},
    "encoder": {"one": 0.4, "two": 0.5},
    "k2": {"one": 0.45, "two": 0.48},
    "k4": {"one": 0.41, "two": 0.55},
    "average": {"one": 0.44, "two": 0.52},
    "augmentation": {"one": 0.43, "two": 0.51},
    "neighbour": {"one": 0.46, "two": 0.49},
}
STARS = ["49.0", "56.0", "49.0", "47.0"]


def plain(root: Path) -> World:
    lists = lists_of(["one", "two"], ["k4", "k2"], list(FUSIONS), ["pixels", "encoder"])
    return World(root, lists, VALUES, set())


def with_chosen(root: Path, unlabelled: set[str] = frozenset()) -> World:
    """The world where the recommended model is evaluated, too."""
    lists = lists_of(["one", "two"], ["k4", "k2"], list(FUSIONS), ["recommended", "encoder"])
    values = VALUES | {"recommended": {"one": 0.5, "two": 0.49}}
    labelled = {model: {task: v for task, v in row.items() if task not in unlabelled} for model, row in values.items()}
    return World(root, lists, labelled, unlabelled)


def train_on_all_classes(root: Path) -> None:
    """The tables of the protocol `collection`: all but the queries train."""
    for task in ("one", "two"):
        table = pq.read_table(root / "images" / task / "table.parquet").to_pydict()
        table["trains"] = [not is_query for is_query in table["is_query"]]
        pq.write_table(pa.table(table, TABLE), root / "images" / task / "table.parquet")
    for folder in root.glob("pseudo_labels/*"):
        shutil.rmtree(folder)
        arrays.write(folder / "labels.zarr", np.zeros(sum(table["trains"]) * 2, np.int64))


def test_main__the_collection_leads_where_it_trained(tmp_path: Path) -> None:
    """It gives the numbers of the first screen, and the other evaluation is folded; else it is the other way round."""
    world = with_chosen(tmp_path)
    text = (world.draw() / "index.html").read_text()
    assert text.index('id="results"') < text.index('<details class="fold"') < text.index('id="collection"')
    assert json.loads((tmp_path / "report/headline.json").read_text())["result"] == {
        "encoder": 45.0,
        "recommended": 49.5,
    }
    train_on_all_classes(tmp_path)
    text = (world.draw("later") / "index.html").read_text()
    assert text.index('id="collection"') < text.index('<details class="fold"') < text.index('id="results"')
    assert json.loads((tmp_path / "later/headline.json").read_text())["result"] == {
        "encoder": 35.0,
        "recommended": 45.5,
    }
    assert "half of a task's classes" not in text and "Recommended model, smoothed" in text
    assert (
        "| recommended | smoothed | 45.5 / 68.2 | 46.0 / 69.0 | 45.0 / 67.5 |"
        in (tmp_path / "later/table.md").read_text()
    )


def nothing_trained(root: Path, best: float, unlabelled: set[str] = frozenset()) -> str:
    """The page of a graph that trains nothing, where the encoder's best form is the chosen one."""
    lists = lists_of(["one", "two"], [], [], ["encoder", "recommended"])
    models = {"encoder": "encoder", "without_training": "choice/without_training", "recommended": "choice"}
    lists = lists.model_copy(update={"models": models})
    values = {"encoder": 0.4, "without_training": best, "recommended": 0.5}
    labelled = {model: {task: v for task in ("one", "two") if task not in unlabelled} for model, v in values.items()}
    world = World(root, lists, labelled, unlabelled)
    write_choice(root / "choice", ["one", "two"], "encoder, at 2 times the side")
    for part in ("pseudo_labels", "adaptor", "fusion"):
        (root / part).mkdir()
    train_on_all_classes(root)
    return (world.draw() / "index.html").read_text(encoding="utf-8")


def test_main__one_model_has_one_row_and_nothing_trained_where_nothing_did(tmp_path: Path) -> None:
    text = nothing_trained(tmp_path / "same", best=0.5)
    assert "Without training<small>" not in text and "Recommended model<small>" in text
    assert "trained" not in re.sub("<[^>]*>|<style.*?</style>", " ", text, flags=re.DOTALL)
    assert "without_training" in json.loads((tmp_path / "same/report/metrics.json").read_text())
    assert "Without training<small>" in nothing_trained(tmp_path / "other", best=0.45)


def test_main__a_flat_folder_has_no_empty_percentage(tmp_path: Path) -> None:
    text = nothing_trained(tmp_path, best=0.5, unlabelled={"one", "two"})
    assert "– %" not in text and 'id="collection"' not in text
    assert "result" not in json.loads((tmp_path / "report/headline.json").read_text())


def test_main__pictures_are_of_the_row_that_is_recommended(tmp_path: Path) -> None:
    """The labels prefer the model without training, smoothed, and its queries are counted beside the encoder's."""
    text = nothing_trained(tmp_path, best=0.6)
    assert "Without training, smoothed</b>" in text and "Recommended model, smoothed</b>" not in text


@pytest.fixture
def world(tmp_path: Path) -> World:
    return plain(tmp_path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the plain world."""
    return plain(tmp_path_factory.mktemp("plain")).draw()


@pytest.fixture(scope="module")
def chosen_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_chosen(tmp_path_factory.mktemp("recommended")).draw()


def page_of(folder: Path) -> Page:
    page = Page((folder / "index.html").read_text(encoding="utf-8"))
    page.text = " ".join(page.text.split())
    return page


def metrics_of(folder: Path) -> dict:
    return json.loads((folder / "metrics.json").read_text())


def cells_of(folder: Path) -> dict[tuple[str, str], list[str]]:
    """{(model, form): the cells of its row} of the results table."""
    lines = (folder / "table.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return {(row[0].split()[0], row[1]): row[2:] for row in rows if row[1] in ("as it is", "whitened")}


def starred(folder: Path) -> list[str]:
    """The numbers that the results table marks as best."""
    results, _, _ = (folder / "index.html").read_text(encoding="utf-8").partition('id="curves"')
    return re.findall(r'<span class="rp best">([0-9.]+)</span>', results)


def test_main__page_needs_nothing_from_outside_and_names_are_escaped(folder):
    text = (folder / "index.html").read_text(encoding="utf-8")
    assert_loads_nothing(text)
    page = page_of(folder)
    assert sum(address.startswith("data:image/jpeg") for address in page.addresses) == len(page.images) > 20
    assert "<script>" not in text and "<script>alert(1)</script>" in page.text


@driven.needed
def test_main__fits_a_phone(chosen_folder):
    assert driven.out_of_a_phone(chosen_folder / "index.html") == []


def test_main__table_and_metrics_hold_the_same_numbers(folder):
    metrics, cells = metrics_of(folder), cells_of(folder)
    assert [model for model, form in cells if form == "whitened"] == [
        *("pixels", "encoder", "k2", "k4", "oracle", "average", "augmentation", "neighbour")
    ]
    for (model, form), row in cells.items():
        numbers = metrics[model + ("" if form == "as it is" else "_whitened")]
        for column, cell in zip(["mean", "one", "two"], row, strict=True):
            assert cell.split(" (")[0] == " / ".join(f"{numbers[column][metric]:.1f}" for metric in METRICS)
    rows = cells["neighbour", "as it is"], cells["encoder", "whitened"]
    gains = [[cell.rpartition(" ")[2] for cell in row] for row in rows]
    assert gains == [["(+2.5)", "(+6.0)", "(−1.0)"], ["(+1.0)"] * 3]


def test_main__metrics_are_percent_the_mean_is_over_tasks_the_oracle_takes_the_best_adaptor(folder):
    metrics = metrics_of(folder)
    assert metrics["neighbour"]["one"] == {"r_precision": 46.0, "map_at_r": 36.8, "recall_at_1": 69.0}
    assert metrics["neighbour"]["mean"]["r_precision"] == 47.5
    assert metrics["neighbour_whitened"]["mean"]["r_precision"] == 48.5
    assert metrics["oracle"]["one"] == metrics["k2"]["one"] and metrics["oracle"]["two"] == metrics["k4"]["two"]
    assert metrics["oracle"]["mean"]["r_precision"] == 50.0


def test_main__star_marks_the_best_but_neither_the_oracle_nor_what_saw_labels(folder, tmp_path):
    assert starred(folder) == STARS
    lists = lists_of(["one", "two"], ["k4", "k2"], list(FUSIONS), ["pixels", "encoder"])
    trained = {"best": {"on": "all", "how": "full"}}
    models = lists.models | {"best": "supervised_model/best"}
    lists = Lists(**lists.model_dump() | {"supervised_models": trained, "models": models})
    supervised = World(tmp_path, lists, VALUES | {"best": {"one": 0.9, "two": 0.9}}, set()).draw()
    assert '<span class="rp">90.0</span>' in (supervised / "index.html").read_text(encoding="utf-8")
    assert starred(supervised) == STARS


def test_branches_section__lead_to_the_pages_of_every_item(folder):
    assert 'id="branches"' not in (folder / "index.html").read_text()
    lists = lists_of(["birds"], ["k4"], ["average"], ["encoder"])
    lists = lists.model_copy(update={"gsp": {"collage": "a"}, "tll": {"own": None, "faces": None}})
    addresses = [page["address"] for page in report.branches_section(lists)["pages"]]
    assert addresses == [
        f"../{page}/index.html" for page in ("gsp_report/collage", "tll_report/own", "tll_report/faces")
    ]


def test_main__two_runs_write_the_same_bytes(world):
    first, second = world.draw("first"), world.draw("second")
    names = sorted(path.relative_to(first).as_posix() for path in first.rglob("*") if path.is_file())
    assert names == [
        "curves.csv",
        "headline.json",
        "index.html",
        "metrics.json",
        "runs/images.parquet",
        "table.md",
        "training.csv",
    ]
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)


def test_main__curves_and_training_are_long_tables(folder):
    curves, training = read_csv(folder / "curves.csv"), read_csv(folder / "training.csv")
    assert len(curves) == 3 * 7
    assert [row["k"] for row in curves if row["task"] == "one"] == ["", "", "2", "4", "", "", ""]
    assert float(next(row for row in curves if row["item"] == "two k4")["r_precision"]) == 55.0
    assert [row["stage"] for row in training if row["epoch"] == "2"] == [
        *("adaptor@k2", "adaptor@k4", "fusion@augmentation", "fusion@neighbour")
    ]


def test_main__nothing_evaluated(tmp_path):
    lists = lists_of(["flat"], ["k2", "k4"], list(FUSIONS), ["pixels", "encoder"])
    folder = World(tmp_path, lists, {}, {"flat"}).draw()
    page = page_of(folder)
    assert "Nothing was measured with labels" in page.text and "Training" in page.text and "svg" in page.tags
    assert metrics_of(folder) == {} and "Nothing was measured" in (folder / "table.md").read_text()
    assert "half of" not in page.text


def test_main__a_baseline_alone_is_shown_without_comparison(tmp_path):
    baselines = ["pixels"]
    lists = lists_of(["one"], ["k2"], [], baselines)
    lists = lists.model_copy(update={"models": {name: lists.models[name] for name in baselines}})
    folder = World(tmp_path, lists, {name: {"one": 0.5} for name in baselines}, set()).draw()
    assert "Nothing was measured" not in page_of(folder).text and "oracle" not in metrics_of(folder)


def test_main__task_whose_queries_are_all_left_out(tmp_path):
    lists = lists_of(["one", "lonely"], ["k2"], ["average"], ["encoder"])
    world = World(tmp_path, lists, {model: {"one": 0.5} for model in ("encoder", "k2", "average")}, set())
    for file in sorted((tmp_path / "evaluation").glob("*/metrics.json")):
        lonely = dict.fromkeys(METRICS, math.nan) | {"queries": 0}
        file.write_text(json.dumps(json.loads(file.read_text()) | {"lonely": lonely}))
    folder = world.draw()
    assert "lonely" not in (folder / "metrics.json").read_text()
    assert metrics_of(folder)["average"]["mean"]["r_precision"] == 50.0
    assert "no query has a relevant image: not evaluated" in page_of(folder).text


def test_main__counts_left_out_queries(world):
    for file in sorted((world.root / "evaluation").glob("*/[mw]*.json")):
        metrics = json.loads(file.read_text())
        metrics["two"]["queries"] = 9
        file.write_text(json.dumps(metrics))
    table = (world.draw() / "table.md").read_text(encoding="utf-8")
    assert "| one | 24 | 12 | 12 | 2 | 2 | 12 | 0 | 1 | 4 |" in table
    assert "| two | 24 | 12 | 12 | 2 | 2 | 9 | 3 | 1 | 4 |" in table


def test_main__names_what_does_not_fit_and_leaves_nothing(world):
    shutil.rmtree(world.root / "pseudo_labels/k2/labels.zarr")
    arrays.write(world.root / "pseudo_labels/k2/labels.zarr", np.zeros(5, np.int64))
    with pytest.raises(ValueError, match="labels 5 images, the tables hold 24"):
        world.draw()
    (world.root / "choice/choice.json").write_text('{"why": []}')
    with pytest.raises(ValueError, match=r"choice\.json is missing or damaged"):
        world.draw()
    assert not (world.root / "report").exists()


def test_main__the_chosen_model_is_the_model_of_the_page(chosen_folder):
    page, html = page_of(chosen_folder), (chosen_folder / "index.html").read_text(encoding="utf-8")
    assert "49.5 of 100" in page.text and "no task falls; two −1.0, of 12 queries: too few to tell" in page.text
    assert re.findall(r'<tbody class="one">\s*<tr>\s*<th[^>]*rowspan="1">([^<]+)<', html) == ["Recommended model"]
    assert list(cells_of(chosen_folder))[-1] == ("recommended", "as it is")
    metrics = metrics_of(chosen_folder)
    assert "recommended" in metrics and "recommended_whitened" not in metrics


def test_main__images_that_are_not_smoothed_are_not_called_so(tmp_path):
    """What was measured is what the commands serve: `--no-smooth`, and no row, title or number of smoothed images."""
    world = with_chosen(tmp_path, set())
    evaluation = world.root / "evaluation"
    for file in evaluation.glob("*/smoothing.json"):
        file.write_text(file.read_text().replace('"strength": 0.9', '"strength": 0.0'))
    folder = world.draw()
    assert "--no-smooth" in page_of(folder).text and ", smoothed" not in page_of(folder).text
    assert not [name for name in metrics_of(folder) if name.startswith("smoothed_")]
    assert "smoothed" not in json.loads((folder / "headline.json").read_text())


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [([], "Unknown which model is best"), (["one", "two"], "The encoder as it is was chosen")],
)
def test_main__the_encoder_is_chosen_or_nothing_can_be_told(world, tasks, expected):
    write_choice(world.root / "choice", tasks, "encoder")
    assert expected in page_of(world.draw()).text


@pytest.mark.parametrize("unlabelled", [set(), {"two"}, {"one", "two"}])
def test_main__tasks_without_labels_are_voted_on(tmp_path, unlabelled):
    folder = with_chosen(tmp_path, unlabelled).draw()
    text = (folder / "index.html").read_text(encoding="utf-8")
    assert text.count('type="radio"') == 3 * 5 * len(unlabelled) and ('id="vote"' in text) == bool(unlabelled)
    assert page_of(folder).text.count("the same neighbours by both: 1 of 6 sampled images") == len(unlabelled)
    assert_loads_nothing(text)


@pytest.mark.slow
@pytest.mark.skipif(driven.CHROMIUM is None, reason="no browser is installed here: apt-get install chromium")
def test_main__a_vote_names_the_lists_and_is_counted(tmp_path):
    """By mouse and by keyboard, without a script; the tally is what a screen reader says."""
    address = (with_chosen(tmp_path, {"two"}).draw() / "index.html").as_uri()
    with driven.at(address) as browser:
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
        browser.until("document.readyState == 'complete'")

        def tally() -> list[str]:
            nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
            said = "".join(node["name"]["value"] for node in nodes if node["role"]["value"] == "StaticText")
            return re.search(r"Your votes: (\d+) for the recommended model, (\d+) for .*?, (\d+) alike", said).groups()

        told = "[...document.querySelectorAll('.told')].filter(name => getComputedStyle(name).visibility == 'visible')"
        assert tally() == ("0", "0", "0") and browser.value(f"{told}.length") == 0
        browser.click("#vote .query:nth-child(1) .recommended")
        browser.click("#vote .query:nth-child(2) .encoder")
        browser.click("#vote .query:nth-child(4) .recommended")
        assert tally() == ("2", "1", "0") and browser.value(f"{told}.length") == 6
        browser.value("document.querySelector('#vote .query:nth-child(3) label:nth-of-type(2) input').focus()")
        browser.key("ArrowRight")
        browser.click("#vote .query:nth-child(1) .encoder")
        assert tally() == ("1", "2", "1") and not browser.complaints()


def test_left_out__counted_by_reason_the_most_first(tmp_path):
    given = [("a.jpg", "cut"), ("b.jpg", "duplicate of x"), ("c.jpg", "duplicate of y"), ("d.jpg", "same picture as x")]
    plain(tmp_path)
    write_csv(tmp_path / "images/one/rejected.csv", [("path", "reason"), *given])
    rows = report.left_out([report.read_task(tmp_path / "images", "one")])
    assert [(row["reason"], row["files"]) for row in rows] == [
        ("duplicate of another", ["b.jpg", "c.jpg"]),
        ("cut", ["a.jpg"]),
        ("same picture as another", ["d.jpg"]),
    ]


def test_main__odd_names_are_shown_as_escapes(tmp_path):
    """No name of a file ends the run, turns the text around, hides in it or becomes HTML."""
    world = with_chosen(tmp_path, {"two"})
    odd = [
        "<script>alert(5)</script>",
        "a\rb",
        "a\nb",
        "\x1b[2J",
        "\u202egnp",
        "\u200f",
        "\u2028",
        "\x85",
        "</td>",
        '"',
        "{{ x }}",
    ]
    for task in ("one", "two"):
        table = pq.read_table(tmp_path / "images" / task / "table.parquet").to_pydict()
        for column in ("path", "class_name"):
            table[column] = [f"{odd[i % len(odd)]} {text}" for i, text in enumerate(table[column])]
        pq.write_table(pa.table(table, TABLE), tmp_path / "images" / task / "table.parquet")
    rejected = [(f"{name}.jpg", f"duplicate of {name}") for name in odd] + [(f"x{name}.jpg", "cut") for name in odd]
    write_csv(tmp_path / "images/one/rejected.csv", [("path", "reason"), *rejected])
    output = world.draw()
    text = (output / "index.html").read_text(encoding="utf-8")
    assert not set(text) & {"\r", "\x1b", "\u202e", "\u200f", "\u2028", "\x85"}
    assert "</td> " not in text and "<script>alert" not in text
    assert re.search(r"\\(x1b|u202e|u200f|u2028|x85|n|r)", text)
    assert r"a\rb.jpg" in text and "<script>alert(5)</script>.jpg" in page_of(output).text
    assert len(read_csv(output / "curves.csv")) == len(world.lists.models) * 2
