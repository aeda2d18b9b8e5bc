"""The report drawn from a small world in the formats that the other stages write."""

import csv
import json
import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polygrain.config.lists import Lists
from polygrain.store import arrays
from polygrain.store.collection import TABLE
from polygrain.store.tables import read_csv, write_csv
from stages import report
from tests.helpers import report_world
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


@pytest.fixture
def world(tmp_path: Path) -> World:
    lists = lists_of(["one", "two"], ["k4", "k2"], list(FUSIONS), ["pixels", "encoder"])
    return World(tmp_path, lists, VALUES, set())


def page_of(folder: Path) -> Page:
    page = Page((folder / "index.html").read_text(encoding="utf-8"))
    page.text = " ".join(page.text.split())
    return page


def cells_of(markdown: str) -> dict[tuple[str, str], list[str]]:
    """{(model, form): the cells of its row} of the results table."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in markdown.splitlines() if line.startswith("|")
    ]
    return {(row[0].split()[0], row[1]): row[2:] for row in rows if row[1] in ("as it is", "whitened")}


def starred(folder: Path) -> list[str]:
    """The numbers that the results table marks as best."""
    results, _, _ = (folder / "index.html").read_text(encoding="utf-8").partition('id="curves"')
    return re.findall(r'<span class="rp best">([0-9.]+)</span>', results)


def test_main__page_needs_nothing_from_outside(world):
    text = (world.draw() / "index.html").read_text(encoding="utf-8")
    assert_loads_nothing(text, beside=["blind.html"])
    page = Page(text)
    assert sum(address.startswith("data:image/jpeg") for address in page.addresses) == len(page.images) > 20


def test_main__names_are_escaped(world):
    folder = world.draw()
    assert "<script>" not in (folder / "index.html").read_text(encoding="utf-8")
    assert "<script>alert(1)</script>" in page_of(folder).text


def test_main__table_and_metrics_hold_the_same_numbers(world):
    folder = world.draw()
    metrics = json.loads((folder / "metrics.json").read_text())
    cells = cells_of((folder / "table.md").read_text(encoding="utf-8"))
    assert [model for model, form in cells if form == "whitened"] == [
        *("pixels", "encoder", "k2", "k4", "oracle", "average", "augmentation", "neighbour")
    ]
    for (model, form), row in cells.items():
        numbers = metrics[model + ("" if form == "as it is" else "_whitened")]
        for column, cell in zip(["mean", "one", "two", "one gallery"], row, strict=True):
            known = numbers.get(column)
            expected = " / ".join(f"{known[metric]:.1f}" if known else "–" for metric in report.scores.METRICS)
            assert cell.split(" (")[0] == expected and (known or model == "oracle")


def test_main__metrics_are_percent_and_mean_is_over_tasks(world):
    metrics = json.loads((world.draw() / "metrics.json").read_text())
    assert metrics["neighbour"]["one"] == {"r_precision": 46.0, "map_at_r": 36.8, "recall_at_1": 69.0}
    assert metrics["neighbour"]["mean"]["r_precision"] == 47.5
    assert metrics["neighbour_whitened"]["mean"]["r_precision"] == 48.5
    assert metrics["neighbour_whitened"]["one gallery"]["r_precision"] == 43.5


def test_main__oracle_takes_the_best_adaptor_of_each_task(world):
    folder = world.draw()
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["oracle"]["one"] == metrics["k2"]["one"] and metrics["oracle"]["two"] == metrics["k4"]["two"]
    assert metrics["oracle"]["mean"]["r_precision"] == 50.0
    assert "not comparable" in page_of(folder).text


def test_main__summary_tells_gain_fall_and_whitening(world):
    text = page_of(world.draw()).text
    assert "+2.5 points" in text
    assert "rises from 45.0 to 47.5 %" in text
    assert "1 of 2 tasks falls: two −1.0" in text
    assert "Whitening alone gives +1.0" in text


def test_main__differences_are_signed(world):
    cells = cells_of((world.draw() / "table.md").read_text(encoding="utf-8"))
    assert [cell.rpartition(" ")[2] for cell in cells["neighbour", "as it is"]] == [
        "(+2.5)",
        "(+6.0)",
        "(−1.0)",
        "(+2.5)",
    ]
    assert [cell.rpartition(" ")[2] for cell in cells["encoder", "whitened"]] == ["(+1.0)"] * 4


def test_main__star_marks_the_best_and_never_the_oracle(world):
    assert starred(world.draw()) == ["49.0", "56.0", "44.0", "49.0", "44.0", "47.0"]


def test_main__star_never_marks_what_saw_labels(tmp_path):
    lists = lists_of(["one", "two"], ["k4", "k2"], list(FUSIONS), ["pixels", "encoder"])
    trained = {"best": {"on": "all", "how": "full"}}
    models = lists.models | {"best": "supervised_model/best"}
    lists = Lists(**lists.model_dump() | {"supervised_models": trained, "models": models})
    folder = World(tmp_path, lists, VALUES | {"best": {"one": 0.9, "two": 0.9}}, set()).draw()
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert '<span class="rp">90.0</span>' in page
    assert starred(folder) == ["49.0", "56.0", "44.0", "49.0", "44.0", "47.0"]


def test_branch_pages__lead_to_the_pages_of_every_item(world):
    assert 'id="branches"' not in (world.draw() / "index.html").read_text()
    lists = lists_of(["birds"], ["k4"], ["average"], ["encoder"])
    lists = lists.model_copy(update={"gsp": {"collage": "a"}, "tll": {"own": None, "faces": None}})
    addresses = [page["address"] for page in report.branch_pages(lists)]
    pages = ("gsp_report/collage", "tll_report/own", "tll_report/faces")
    assert addresses == [f"../{page}/index.html" for page in pages]


def test_main__two_runs_write_the_same_bytes(world):
    first, second = world.draw("first"), world.draw("second")
    names = sorted(path.name for path in first.iterdir())
    assert names == ["blind.html", "curves.csv", "index.html", "metrics.json", "table.md", "training.csv"]
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)


def test_main__lists_rejected_files_up_to_the_limit(world):
    text = page_of(world.draw()).text
    assert "10 files left out, the first 3 listed" in text
    assert [f"{i}.jpg truncated" in text for i in range(4)] == [True] * 3 + [False]


def test_main__curves_and_training_are_long_tables(world):
    folder = world.draw()
    with (folder / "curves.csv").open(newline="") as file:
        curves = list(csv.DictReader(file))
    assert len(curves) == 3 * 7
    assert [row["k"] for row in curves if row["task"] == "one"] == ["", "", "2", "4", "", "", ""]
    assert float(next(row for row in curves if row["item"] == "two k4")["r_precision"]) == 55.0
    with (folder / "training.csv").open(newline="") as file:
        training = list(csv.DictReader(file))
    assert [row["stage"] for row in training if row["epoch"] == "2"] == [
        *("adaptor@k2", "adaptor@k4", "fusion@augmentation", "fusion@neighbour")
    ]


def test_main__nothing_evaluated_is_said(tmp_path):
    lists = lists_of(["flat"], ["k2", "k4"], list(FUSIONS), ["pixels", "encoder"])
    folder = World(tmp_path, lists, {}, {"flat"}).draw()
    page = page_of(folder)
    assert "Nothing was evaluated" in page.text and "no labels: trained on, not evaluated" in page.text
    assert "Training" in page.text and "svg" in page.tags
    assert json.loads((folder / "metrics.json").read_text()) == {}
    assert "Nothing was evaluated" in (folder / "table.md").read_text()


def test_main__one_task_and_one_adaptor(tmp_path):
    lists = lists_of(["one"], ["k2"], [], ["encoder"])
    folder = World(tmp_path, lists, {"encoder": {"one": 0.5}, "k2": {"one": 0.5}}, set()).draw()
    page = page_of(folder)
    assert "R-Precision on one stays from 50.0 to 50.0 %" in page.text.replace("  ", " ")
    assert "±0.0" in page.text and "attention" not in page.addresses


@pytest.mark.parametrize("baselines", [["pixels"], ["pixels", "encoder"]])
def test_main__only_baselines_are_shown_without_comparison(tmp_path, baselines):
    lists = lists_of(["one"], ["k2"], [], baselines)
    lists = lists.model_copy(update={"models": {name: lists.models[name] for name in baselines}})
    folder = World(tmp_path, lists, {name: {"one": 0.5} for name in baselines}, set()).draw()
    assert "Nothing to compare" in page_of(folder).text
    assert "oracle" not in json.loads((folder / "metrics.json").read_text())


def test_main__task_whose_queries_are_all_left_out(tmp_path):
    lists = lists_of(["one", "lonely"], ["k2"], ["average"], ["encoder"])
    values = {model: {"one": 0.5} for model in ("encoder", "k2", "average")}
    world = World(tmp_path, lists, values, set())
    for file in sorted((tmp_path / "evaluation").glob("*/metrics.json")):
        metrics = json.loads(file.read_text())
        file.write_text(
            json.dumps(metrics | {"lonely": dict.fromkeys(report.scores.METRICS, math.nan) | {"queries": 0}})
        )
    folder = world.draw()
    assert "lonely" not in (folder / "metrics.json").read_text()
    assert json.loads((folder / "metrics.json").read_text())["average"]["mean"]["r_precision"] == 50.0
    assert "no query has a relevant image: not evaluated" in page_of(folder).text


def test_main__counts_left_out_queries(world):
    file = world.root / "evaluation" / "encoder" / "metrics.json"
    for model in world.lists.models:
        for name in ("metrics.json", "whitened.json"):
            file = world.root / "evaluation" / model / name
            metrics = json.loads(file.read_text())
            metrics["two"]["queries"] = 9
            file.write_text(json.dumps(metrics))
    table = (world.draw() / "table.md").read_text(encoding="utf-8")
    assert "| one | 24 | 12 | 12 | 2 | 2 | 12 | 0 | 1 | 4 |" in table
    assert "| two | 24 | 12 | 12 | 2 | 2 | 9 | 3 | 1 | 4 |" in table


def test_main__pseudo_labels_of_other_images_are_refused(world):
    folder = world.root / "pseudo_labels" / "k2"
    arrays.write(folder / "again" / "labels.zarr", np.zeros(5, np.int64))
    (folder / "again" / "labels.zarr").rename(folder / "new.zarr")
    (folder / "labels.zarr").rename(folder / "old.zarr")
    (folder / "new.zarr").rename(folder / "labels.zarr")
    with pytest.raises(ValueError, match="labels 5 images, the tables hold 24"):
        world.draw()


def with_chosen(root: Path, unlabelled: set[str] = frozenset()) -> World:
    """The world where the chosen model and a distilled one are evaluated, too."""
    lists = lists_of(["one", "two"], ["k4", "k2"], list(FUSIONS), ["chosen", "distilled_encoder", "encoder"])
    values = VALUES | {"distilled_encoder": {"one": 0.42, "two": 0.5}, "chosen": {"one": 0.5, "two": 0.49}}
    shown = {model: {task: v for task, v in own.items() if task not in unlabelled} for model, own in values.items()}
    return World(root, lists, shown, unlabelled)


def test_main__the_chosen_model_is_the_model_of_the_page(tmp_path):
    folder = with_chosen(tmp_path).draw()
    page, html = page_of(folder), (folder / "index.html").read_text(encoding="utf-8")
    assert "rises from 45.0 to 49.5 %" in page.text and "1 of 2 tasks falls: two −1.0" in page.text
    assert "under the frozen encoder and under the chosen model" in page.text
    (shown,) = re.findall(r'<tbody class="one">\s*<tr>\s*<th[^>]*rowspan="1">([^<]+)<', html)
    assert shown == "Chosen model"
    rows = list(cells_of((folder / "table.md").read_text(encoding="utf-8")))
    assert rows[-2:] == [("distilled_encoder", "as it is"), ("chosen", "as it is")]
    metrics = json.loads((folder / "metrics.json").read_text())
    assert "chosen" in metrics and not {"chosen_whitened", "distilled_encoder_whitened"} & set(metrics)
    assert "Against whitening alone" in page.text and "Chosen model − Frozen encoder, whitened +3.5" in page.text
    assert "Against the best fusion" in page.text and "Both whitened" not in page.text


def test_main__says_why_this_model(world):
    text = page_of(world.draw()).text
    assert "Adaptor k4 at 0.75 of its strength, half-whitened to 8 dimensions" in text
    assert "7 candidates were <b>compared</b>." in text
    assert "35.0 → 75.0 +40.0 +35.0 to +45.0" in text
    assert "The best of 7 candidates" in text and "encoder, at 2 times the side, with its mirror image" in text


def test_main__granularities_that_no_task_prefers_are_named(world):
    """k4 at 0.5 is higher, but k2 was not looked at there."""
    text = page_of(world.draw()).text
    assert "at 0.75 of their strength" in text
    assert "one 60.045.0 70.041.0 k4 k2 two 60.048.0 80.055.0 k4 k4" in text
    assert "No task prefers k2: a rung that" in text


@pytest.mark.parametrize("said", [{}, {"uncertain": ["one", "<i>two</i>"]}])
def test_main__a_choice_that_cannot_tell_is_shown_plainly(world, said):
    write_choice(world.root / "choice", [], "encoder", **said)
    folder = world.draw()
    text = page_of(folder).text
    assert "It cannot be told which model is best" in text and "the chosen model is the encoder" in text
    assert ("Cannot tell: one, <i>two</i>" in text) == bool(said)
    assert "Nothing to compare" in (folder / "blind.html").read_text() and "blind.html" not in page_of(folder).addresses


@pytest.mark.parametrize("nothing", [math.nan, None])
def test_main__a_criterion_without_a_value_is_left_out(world, nothing):
    sides = {"encoder": [nothing] * 3, "chosen": [nothing] * 3, "difference": [nothing] * 3}
    write_choice(world.root / "choice", ["one", "two"], criterion={"mean": sides, "one": sides}, uncertain=["two"])
    text = page_of(world.draw()).text
    assert "It cannot be told which model is best" in text and "Cannot tell: two" in text


def test_main__the_encoder_itself_is_chosen(tmp_path):
    world = with_chosen(tmp_path)
    write_choice(tmp_path / "choice", ["one", "two"], "encoder")
    folder = world.draw()
    assert "The frozen encoder itself was chosen" in page_of(folder).text
    assert "Nothing to compare" in (folder / "blind.html").read_text() and "blind.html" not in page_of(folder).addresses


@pytest.mark.parametrize("unlabelled", [{"two"}, {"one", "two"}])
def test_main__tasks_without_labels_show_what_changed_and_lead_to_the_judgement(tmp_path, unlabelled):
    world = with_chosen(tmp_path, unlabelled)
    folder = world.draw()
    page = page_of(folder)
    assert page.text.count("of 6 sampled images 5 have other neighbours") == len(unlabelled)
    assert page.text.count("0 of 5 in common") == len(unlabelled)
    assert page.addresses.count("blind.html") == 3 + (len(unlabelled) == 2)
    assert {"Image a/5.jpg", "Image a/4.jpg"} <= {image["alt"] for image in page.images}
    entries = re.findall(r"data-entry='([^']*)'", (folder / "blind.html").read_text(encoding="utf-8"))
    assert Counter(json.loads(entry)["task"] for entry in entries) == {"one": 3, "two": 3}


def test_main__names_of_images_are_escaped_in_both_pages(tmp_path):
    world = with_chosen(tmp_path, {"two"})
    file = tmp_path / "images/two/table.parquet"
    table = pq.read_table(file)
    hostile = pa.array([f"<script>alert({i})</script>.jpg" for i in range(len(table))])
    pq.write_table(table.set_column(0, table.schema.field(0), hostile), file)
    folder = world.draw()
    assert "<script>alert(5)</script>.jpg" in page_of(folder).text
    for name in ("index.html", "blind.html"):
        assert "<script>alert" not in (folder / name).read_text(encoding="utf-8")


def test_main__nothing_is_judged_where_none_is_asked_for(world):
    stages = ("images", "pseudo_labels", "adaptor", "fusion", "evaluation", "choice", "report")
    params = report_world.PARAMS.model_copy(update={"judgements": 0})
    report.main(*[world.root / stage for stage in stages], params=params, lists=world.lists)
    assert "or none was asked for" in page_of(world.root / "report").text


def test_main__a_damaged_choice_is_named(world):
    (world.root / "choice" / "choice.json").write_text('{"why": []}')
    with pytest.raises(ValueError, match=r"choice\.json is missing or damaged"):
        world.draw()
    assert not (world.root / "report").exists()


def test_main__odd_names_are_shown_as_escapes(world):
    """Whatever lies in a folder of images: no name ends the run, turns the text around or hides in it."""
    odd = ["a\rb", "a\nb", "\x1b[2J", "\u202egnp", "\u200f", "\u2028", "\x85", "</td>", '"', "{{ x }}", "\U0001f600"]
    folder = world.root / "images/one"
    table = pq.read_table(folder / "table.parquet").to_pydict()
    for column in ("path", "class_name"):
        table[column] = [f"{odd[i % len(odd)]} {text}" for i, text in enumerate(table[column])]
    table["label"] = [i // 6 for i in range(len(table["label"]))]
    pq.write_table(pa.table(table, TABLE), folder / "table.parquet")
    rejected = [(f"{name}.jpg", f"duplicate of {name}") for name in odd] + [(f"x{name}.jpg", "cut") for name in odd]
    write_csv(folder / "rejected.csv", [("path", "reason"), *rejected])
    output = world.draw()
    pages = [(output / page).read_text(encoding="utf-8") for page in ("index.html", "blind.html")]
    for text in pages:
        assert not set(text) & {"\r", "\x1b", "\u202e", "\u200f", "\u2028", "\x85"} and "</td> " not in text
        assert re.search(r"\\(x1b|u202e|u200f|u2028|x85|n|r)", text)
    assert r"a\rb.jpg" in pages[0]
    assert len(read_csv(output / "curves.csv")) == len(world.lists.models) * 3


def test_main__the_first_section_says_what_to_use_and_how(tmp_path):
    """A task without labels stands in the same table, by its criterion."""
    lists = lists_of(["one", "flat"], ["k4"], ["average"], ["encoder", "chosen"])
    values = {"encoder": {"one": 0.4}, "chosen": {"one": 0.5}, "k4": {"one": 0.4}, "average": {"one": 0.4}}
    text = page_of(World(tmp_path, lists, values, {"flat"}).draw()).text
    start = text.index("Use the model R-Precision on one: the model 50.0 %, the encoder as it is 40.0 %.")
    assert start < text.index("polygrain search --in IMAGES --page --model") < text.index("R-Precision on one rises")
    assert "polygrain export " in text
    assert "one 35.0 75.0 +40.0 40.0 50.0 +10.0 flat 35.0 75.0 +40.0 no labels" in text
