import base64
import hashlib
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from polygrain.findings import blind

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "'\"><b>&amp;",
    'a,"b"\r\n=1',
    "\\u003c{{ 7 }}",
]
# Of a picture in the middle: what the model finds is bright, what the encoder finds dark.
QUERY, ENCODER, MODEL = 128, 20, 230


def comparisons(count: int) -> list[blind.BlindComparison]:
    grey, dark, bright = (np.full((6, 8, 3), tone, np.uint8) for tone in (QUERY, ENCODER, MODEL))
    names = [(HOSTILE[i % len(HOSTILE)], f"{HOSTILE[i % 3]}/{i}.jpg") for i in range(count)]
    return [blind.BlindComparison(*name, grey, [dark] * 3, [bright] * 3) for name in names]


def picture(address: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2])))


class Read(HTMLParser):
    """What a page holds: the tags, and the entry of each query with the tones of its pictures."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.entries: list[dict] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if "data-entry" in attributes:
            self.entries.append(json.loads(attributes["data-entry"]) | {"tones": []})
        if tag == "img":
            image = picture(attributes["src"])
            self.entries[-1]["tones"].append(image.getpixel((0, 0))[0])

    def upper(self) -> list[str]:
        """Which row is the upper one, as its pictures say."""
        return ["model" if entry["tones"][1] > QUERY else "encoder" for entry in self.entries]


def written(tmp_path: Path, count: int, seed: int = 3) -> str:
    file = tmp_path / "blind.html"
    blind.write(file, comparisons(count), 32, seed)
    return file.read_text(encoding="utf-8")


def digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


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
