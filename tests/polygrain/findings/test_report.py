"""The page of the report, drawn from a small world."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polygrain.config.lists import Lists
from polygrain.store.image_table import TABLE
from polygrain.store.tables import read_csv, write_csv
from tests.helpers import driven
from tests.helpers.page import assert_loads_nothing
from tests.helpers.report_world import (
    FUSIONS,
    VALUES,
    World,
    cells_of,
    lists_of,
    metrics_of,
    nothing_trained,
    page_of,
    plain,
    train_on_all_classes,
    with_chosen,
    write_choice,
)

STARS = ["49.0", "56.0", "49.0", "47.0"]


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


def starred(folder: Path) -> list[str]:
    """The numbers that the results table marks as best."""
    results, _, _ = (folder / "index.html").read_text(encoding="utf-8").partition('id="curves"')
    return re.findall(r'<span class="rp best">([0-9.]+)</span>', results)


def test_write__the_collection_leads_where_it_trained(tmp_path: Path) -> None:
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


def test_write__a_flat_folder_has_no_empty_percentage(tmp_path: Path) -> None:
    text = nothing_trained(tmp_path, best=0.5, unlabelled={"one", "two"})
    assert "– %" not in text and 'id="collection"' not in text
    assert "result" not in json.loads((tmp_path / "report/headline.json").read_text())


def test_write__pictures_are_of_the_row_that_is_recommended(tmp_path: Path) -> None:
    """The labels prefer the model without training, smoothed, and its queries are counted beside the encoder's."""
    text = nothing_trained(tmp_path, best=0.6)
    assert "Without training, smoothed</b>" in text and "Recommended model, smoothed</b>" not in text


def test_write__page_needs_nothing_from_outside_and_names_are_escaped(folder):
    text = (folder / "index.html").read_text(encoding="utf-8")
    assert_loads_nothing(text)
    page = page_of(folder)
    assert sum(address.startswith("data:image/jpeg") for address in page.addresses) == len(page.images) > 20
    assert "<script>" not in text and "<script>alert(1)</script>" in page.text


@driven.needed
def test_write__fits_a_phone(chosen_folder):
    assert driven.out_of_a_phone(chosen_folder / "index.html") == []


def test_write__star_marks_the_best_but_neither_the_oracle_nor_what_saw_labels(folder, tmp_path):
    assert starred(folder) == STARS
    lists = lists_of(["one", "two"], ["k4", "k2"], list(FUSIONS), ["pixels", "encoder"])
    trained = {"best": {"on": "all", "how": "full"}}
    models = lists.models | {"best": "supervised_model/best"}
    lists = Lists(**lists.model_dump() | {"supervised_models": trained, "models": models})
    supervised = World(tmp_path, lists, VALUES | {"best": {"one": 0.9, "two": 0.9}}, set()).draw()
    assert '<span class="rp">90.0</span>' in (supervised / "index.html").read_text(encoding="utf-8")
    assert starred(supervised) == STARS


def test_write__leads_to_the_pages_of_the_other_branches(folder, world):
    assert 'id="branches"' not in (folder / "index.html").read_text()
    world.lists = world.lists.model_copy(update={"gsp": {"collage": "a"}, "tll": {"own": None, "faces": None}})
    pages = [address for address in page_of(world.draw()).addresses if address.startswith("../")]
    assert pages == [f"../{page}/index.html" for page in ("gsp_report/collage", "tll_report/own", "tll_report/faces")]


def test_write__nothing_evaluated(tmp_path):
    lists = lists_of(["flat"], ["k2", "k4"], list(FUSIONS), ["pixels", "encoder"])
    folder = World(tmp_path, lists, {}, {"flat"}).draw()
    page = page_of(folder)
    assert "Nothing was measured with labels" in page.text and "Training" in page.text and "svg" in page.tags
    assert metrics_of(folder) == {} and "Nothing was measured" in (folder / "table.md").read_text()
    assert "half of" not in page.text


def test_write__the_chosen_model_is_the_model_of_the_page(chosen_folder):
    page, html = page_of(chosen_folder), (chosen_folder / "index.html").read_text(encoding="utf-8")
    assert "49.5 of 100" in page.text and "no task falls; two −1.0, of 12 queries: too few to tell" in page.text
    assert re.findall(r'<tbody class="one">\s*<tr>\s*<th[^>]*rowspan="1">([^<]+)<', html) == ["Recommended model"]
    assert list(cells_of(chosen_folder))[-1] == ("recommended", "as it is")
    metrics = metrics_of(chosen_folder)
    assert "recommended" in metrics and "recommended_whitened" not in metrics


@pytest.mark.parametrize(
    ("tasks", "expected"), [([], "Unknown which model is best"), (["one", "two"], "The encoder as it is was chosen")]
)
def test_write__the_encoder_is_chosen_or_nothing_can_be_told(world, tasks, expected):
    write_choice(world.root / "choice", tasks, "encoder")
    assert expected in page_of(world.draw()).text


@pytest.mark.parametrize("unlabelled", [set(), {"two"}, {"one", "two"}])
def test_write__tasks_without_labels_are_voted_on(tmp_path, unlabelled):
    folder = with_chosen(tmp_path, unlabelled).draw()
    text = (folder / "index.html").read_text(encoding="utf-8")
    assert text.count('type="radio"') == 3 * 5 * len(unlabelled) and ('id="vote"' in text) == bool(unlabelled)
    assert page_of(folder).text.count("the same neighbours by both: 1 of 6 sampled images") == len(unlabelled)
    assert_loads_nothing(text)


@pytest.mark.slow
@pytest.mark.skipif(driven.CHROMIUM is None, reason="no browser is installed here: apt-get install chromium")
def test_write__a_vote_names_the_lists_and_is_counted(tmp_path):
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


def test_write__odd_names_are_shown_as_escapes(tmp_path):
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
