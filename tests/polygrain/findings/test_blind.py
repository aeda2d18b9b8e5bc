import base64
import csv
import hashlib
import io
import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote_to_bytes

import numpy as np
import pytest
from PIL import Image
from scipy.stats import binomtest

from polygrain.findings import blind
from tests.helpers.browser import CHROMIUM

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "'\"><b>&amp;",
    'a,"b"\r\n=1',
    "\\u003c{{ 7 }}",
]
# Of a picture in the middle: what the model finds is bright, what the encoder finds dark.
QUERY, ENCODER, MODEL = 128, 20, 230

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no browser is installed here: apt-get install chromium")


def comparisons(count: int) -> list[blind.BlindComparison]:
    grey, dark, bright = (np.full((6, 8, 3), tone, np.uint8) for tone in (QUERY, ENCODER, MODEL))
    names = [(HOSTILE[i % len(HOSTILE)], f"{HOSTILE[i % 3]}/{i}.jpg") for i in range(count)]
    return [blind.BlindComparison(*name, grey, [dark] * 3, [bright] * 3) for name in names]


def picture(address: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2])))


class Read(HTMLParser):
    """What a page holds: the tags, the entry of each query with the tones of its pictures, values and texts by id."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.entries: list[dict] = []
        self.texts: dict[str, str] = {}
        self.values: dict[str, str] = {}
        self.last = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        self.last = attributes.get("id", "")
        if tag == "data":
            self.values[attributes["id"]] = attributes.get("value", "")
        if "data-entry" in attributes:
            self.entries.append(json.loads(attributes["data-entry"]) | {"tones": []})
        if tag == "img":
            image = picture(attributes["src"])
            self.entries[-1]["tones"].append(image.getpixel((0, 0))[0])

    def handle_endtag(self, tag):
        self.last = ""

    def handle_data(self, data):
        self.texts[self.last] = self.texts.get(self.last, "") + data

    def upper(self) -> list[str]:
        """Which row is the upper one, as its pictures say."""
        return ["model" if entry["tones"][1] > QUERY else "encoder" for entry in self.entries]


def written(tmp_path: Path, count: int, seed: int = 3) -> str:
    file = tmp_path / "blind.html"
    blind.write(file, comparisons(count), 32, seed)
    return file.read_text(encoding="utf-8")


def digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def browse(page: Path, driver: str, before: str = "") -> Read:
    """The page in a headless browser after the script `driver` at its end; `before` runs before the page's own."""
    driven = page.with_name("driven.html")
    press = """
      const press = (key, more = {}, target = document.body) =>
        target.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, ...more}));"""
    text = page.read_text(encoding="utf-8").replace("<body>", f"<body><script>{before}</script>", 1)
    # The page's policy lets its own script run; these two are added, and all else stays forbidden.
    added = " ".join(f"'sha256-{digest(script)}'" for script in (before, press + driver))
    text = text.replace("script-src ", f"script-src {added} ", 1)
    driven.write_text(f"{text}<script>{press}{driver}</script>", encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-dev-shm-usage", f"--user-data-dir={page.parent / 'browser'}"]
    options += ["--virtual-time-budget=5000", "--dump-dom", driven.as_uri()]
    done = subprocess.run([CHROMIUM, *options], capture_output=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    return Read(done.stdout.decode())


def element(read: Read, name: str) -> dict:
    (attributes,) = [attributes for _, attributes in read.tags if attributes.get("id") == name]
    return attributes


def test_write__each_query_once_with_its_rows_on_the_sides_that_its_mark_says(tmp_path):
    read = Read(written(tmp_path, 200))
    names = [(entry["task"], entry["query"]) for entry in read.entries]
    given = [(one.task, one.query) for one in comparisons(200)]
    assert sorted(names) == sorted(given) and names != given
    for entry, upper in zip(read.entries, read.upper(), strict=True):
        query, *rows = (min((QUERY, ENCODER, MODEL), key=lambda value: abs(value - tone)) for tone in entry["tones"])
        sides = [MODEL, ENCODER] if upper == "model" else [ENCODER, MODEL]
        assert query == QUERY and rows == [sides[0]] * 3 + [sides[1]] * 3
        assert (bin(entry["mark"]).count("1") % 2 == 1) == (upper == "model")
    assert 70 < read.upper().count("model") < 130


def test_write__best_first_and_small(tmp_path):
    ramp = [np.full((40, 80, 3), tone, np.uint8) for tone in (0, 60, 120, 180, 240)]
    blind.write(tmp_path / "blind.html", [blind.BlindComparison("a", "b", ramp[0], ramp, ramp)], 20, 0)
    read = Read((tmp_path / "blind.html").read_text())
    assert read.entries[0]["tones"] == pytest.approx([0, *2 * (0, 60, 120, 180, 240)], abs=3)
    assert {picture(attributes["src"]).size for tag, attributes in read.tags if tag == "img"} == {(20, 10)}


def test_write__same_bytes_twice_and_another_draw_by_another_seed(tmp_path):
    assert written(tmp_path, 20) == written(tmp_path, 20)
    pages = [Read(written(tmp_path, 20, seed)) for seed in (1, 2)]
    assert pages[0].upper() != pages[1].upper()
    assert len({element(page, "judging")["data-digest"] for page in pages}) == 2


def test_write__names_are_text_nothing_comes_from_outside_and_only_the_page_s_script_may_run(tmp_path):
    text = written(tmp_path, 10)
    read = Read(text)
    assert [attributes for tag, attributes in read.tags if tag == "script"] == [{}] and text.count("</script") == 1
    assert not [tag for tag, attributes in read.tags if tag == "b" or any(name.startswith("on") for name in attributes)]
    assert not re.search(r"https?:|url\(|@import", text)
    addresses = {attributes[name] for _, attributes in read.tags for name in ("src", "href") if name in attributes}
    assert all(address.startswith("data:") for address in addresses)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert f"; script-src 'sha256-{digest(script)}'\">" in text


def test_write__nothing_that_is_read_says_which_row_is_which(tmp_path):
    """Names below `id` and `class` belong to the result; a key is a task, a query and a number."""
    read = Read(written(tmp_path, 10))
    for tag, attributes in read.tags:
        values = [str(value) for name, value in attributes.items() if name not in ("src", "data-entry", "id", "class")]
        assert not re.search("model|encoder", " ".join(values)), (tag, values)
    assert "hidden" in element(read, "result")
    assert all(entry.keys() == {"task", "query", "mark", "tones"} for entry in read.entries)


def test_write__zero_comparisons(tmp_path):
    text = written(tmp_path, 0)
    assert "Nothing to compare" in text and "<script" not in text and "script-src" not in text


@pytest.mark.parametrize(
    ("lengths", "message"), [([(3, 3), (3, 3)], "twice"), ([(2, 3)], "2 results"), ([(0, 0)], "0 results")]
)
def test_write__refuses_what_cannot_be_compared(tmp_path, lengths, message):
    grey = np.zeros((6, 8, 3), np.uint8)
    pairs = [blind.BlindComparison("a", "b", grey, [grey] * first, [grey] * second) for first, second in lengths]
    with pytest.raises(ValueError, match=message):
        blind.write(tmp_path / "blind.html", pairs, 32, 0)


@needs_browser
@pytest.mark.parametrize("storage", [True, False])
def test_page__counts_votes_by_keys_as_the_export_and_scipy_do(tmp_path, storage):
    count = 24
    upper = Read(written(tmp_path, count)).upper()
    pressed = ["1", "2", "0", "ArrowUp", "ArrowDown", " ", "2", "1"] * 3
    # Two that are taken back, and keys that say nothing.
    keys = ["1", "z", *pressed[:5], "0", "Backspace", "x", "3", "Enter", *pressed[5:], "1"]
    gone = "Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('no'); }});"
    driver = f"""
      document.documentElement.dataset.begun = document.getElementById("place").textContent;
      for (const key of {json.dumps(keys)}) press(key);"""
    read = browse(tmp_path / "blind.html", driver, "" if storage else gone)
    assert ("html", {"lang": "en", "data-begun": f"Query 1 of {count}"}) in read.tags

    won = []
    for key, first in zip(pressed, upper, strict=True):
        second = "encoder" if first == "model" else "model"
        won.append("tie" if key in "0 " else first if key in ("1", "ArrowUp") else second)
    theirs = binomtest(won.count("model"), 18, 0.5)
    interval = theirs.proportion_ci(method="wilson")
    shown = {name: float(value) for name, value in read.values.items()}
    counts = {"judgements": count, "model": won.count("model"), "encoder": won.count("encoder"), "ties": 6}
    shares = {"rate": theirs.statistic, "low": interval.low, "high": interval.high, "p": theirs.pvalue}
    assert shown == pytest.approx(counts | shares | {"decided": 18})
    assert {name: read.texts[name] for name in ("rate", "low", "high", "p")} == {
        "rate": f"{100 * theirs.statistic:.1f} %",
        "low": f"{100 * interval.low:.1f} %",
        "high": f"{100 * interval.high:.1f} %",
        "p": f"= {theirs.pvalue:.4f}",
    }
    assert "hidden" in element(read, "judging") and "hidden" not in element(read, "result")
    assert "hidden" in element(read, "early") and "hidden" in element(read, "toggle")

    # By the link and not by the text, whose line ends a browser may change.
    kind, _, content = element(read, "download")["href"].partition(",")
    assert kind == "data:text/csv;charset=utf-8"
    (tmp_path / "votes.csv").write_bytes(unquote_to_bytes(content))
    with (tmp_path / "votes.csv").open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert [(row["task"], row["query"]) for row in rows] == [(one["task"], one["query"]) for one in read.entries]
    assert [row["shown_first"] for row in rows] == upper and [row["winner"] for row in rows] == won
    assert read.texts["csv"].startswith("task,query,shown_first,vote,winner\n")


@needs_browser
def test_page__shows_the_result_when_asked_and_keeps_votes_through_a_reload(tmp_path):
    written(tmp_path, 6)
    first = """
      note("new");
      press("1"); press("2", {repeat: true}); press("2", {ctrlKey: true});
      note("one");
      vote("0").focus(); press(" ", {}, vote("0")); vote("0").click();
      note("two: the space is the button's");
      click("toggle"); press("1");
      note("asked");
      click("toggle"); press("2");
      note("three");
      press("2"); click("toggle"); click("undo");
      note("undone");
      location.reload();"""
    second = """
      note("reloaded");
      press("1"); press("1"); press("1");
      note("done");
      press("z");
      note("one left");
      confirm = () => false; click("reset");
      note("not reset");
      confirm = () => true; click("reset");
      note("reset");
      document.documentElement.dataset.states = sessionStorage.states;"""
    driver = f"""
      const find = (name) => document.getElementById(name);
      const click = (name) => find(name).click();
      const vote = (name) => document.querySelector(`[data-vote="${{name}}"]`);
      const isReloaded = "states" in sessionStorage;
      sessionStorage.states ??= "{{}}";
      const note = (when) => {{
        const query = [...document.querySelectorAll("article")].findIndex((query) => !query.hidden);
        const result = find("result").hidden ? "" : find("judgements").textContent;
        const state = [query, find("progress").value, find("judging").hidden, result, find("undo").disabled];
        sessionStorage.states = JSON.stringify({{...JSON.parse(sessionStorage.states), [when]: state}});
      }};
      if (isReloaded) {{ {second} }} else {{ {first} }}"""
    read = browse(tmp_path / "blind.html", driver)
    (states,) = [attributes["data-states"] for tag, attributes in read.tags if tag == "html"]
    # The query that is seen, the progress, whether judging is put away, judgements in the result, nothing to undo.
    assert json.loads(states) == {
        "new": [0, 0, False, "", True],
        "one": [1, 1, False, "", False],
        "two: the space is the button's": [2, 2, False, "", False],
        "asked": [2, 2, True, "2", False],
        "three": [3, 3, False, "", False],
        "undone": [3, 3, False, "", False],
        "reloaded": [3, 3, False, "", False],
        "done": [-1, 6, True, "6", False],
        "one left": [5, 5, False, "", False],
        "not reset": [5, 5, False, "", False],
        "reset": [0, 0, False, "", True],
    }
