"""The search page as a person uses it, in a real browser: mouse, keyboard, files dropped on it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image

from tests.helpers import driven
from tests.helpers.driven import Driven, at
from tests.polygrain.cli.test_search import write_smoothed

ROOT = Path(__file__).parents[4]
QUERIED = "document.querySelectorAll('.side').length == 2 && document.querySelector('#asked').naturalWidth > 0"
IDLE = "!document.body.classList.contains('busy')"

pytestmark = [pytest.mark.slow, driven.needed]


@pytest.fixture
def address(fused: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address that the command prints."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # A name that would be a script if it were read as HTML.
    (photos / "dots/class2/0.png").rename(photos / "dots/class2/<img src=x onerror=alert(1)>.png")
    with serving("--in", photos, "--model", fused) as address:
        yield address


@contextmanager
def serving(*words: object) -> Iterator[str]:
    """The address of the page of `polygrain search` with these words."""
    words = ["search", "--page", "--port", "0", *words]
    server = subprocess.Popen(
        [sys.executable, "-m", "polygrain", *map(str, words)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        yield re.search(r"http://\S+", server.stdout.readline())[0]
        assert server.poll() is None
    finally:
        server.terminate()
        server.wait(20)
        server.stdout.close()


def shown(browser: Driven, side: int) -> list[str]:
    """The paths that a side shows, in their order."""
    browser.until(IDLE)
    return browser.value(f"[...document.querySelectorAll('.side')[{side}].querySelectorAll('.tile')].map(t => t.title)")


def status(browser: Driven) -> str:
    browser.until(IDLE)
    return browser.value("document.querySelector('#status').textContent")


def slide(browser: Driven, slider: str, value: float) -> None:
    """Moves a slider, as a hand does."""
    moved = "slider.dispatchEvent(new Event('input')), slider.dispatchEvent(new Event('change'))"
    browser.value(f"(slider => {{ slider.value = {value}; {moved} }})(document.querySelector('{slider}'))")
    browser.until(IDLE)


def test_page__slider(fused: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = write_smoothed(tmp_path / "e.parquet", fused, photos)
    with serving("--in", file) as address, at(address) as browser:
        browser.until("document.querySelectorAll('.tile').length == 24")
        browser.click(".tile")
        browser.until(QUERIED)
        start, before = browser.value("document.querySelector('#place').value"), shown(browser, 1)
        slide(browser, "#place", 0)
        assert start == "1" and shown(browser, 1) != before
        browser.click("#mark")
        assert browser.complaints() == []


def test_page__images_of_no_folder_are_one_to_choose(
    fused: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (photos / "bars/class1/1.png").rename(photos / "1.png")
    with serving("--in", photos, "--model", fused) as address, at(address) as browser:
        browser.until("document.querySelectorAll('.tile').length == 24")
        browser.value("[...document.querySelectorAll('#tasks label')].find(l => /top/.test(l.textContent)).click()")
        browser.until("document.querySelectorAll('.tile').length == 1")
        assert browser.value("document.querySelector('.tile').title") == "1.png"


def test_page__click_filter_crop_drop_and_keys(address: str, photos: Path, tmp_path: Path) -> None:
    with at(address) as browser:
        browser.until("document.querySelectorAll('.tile').length == 24")
        assert status(browser) == "24 of 24 images"

        # Near-duplicates: pairs, each a way to a search; Back leads there again.
        browser.click("#alike")
        browser.until("document.querySelectorAll('.pair').length > 0")
        assert status(browser).partition(" with ")[2].startswith("a cosine of 0.950 or more; ")

        # Ticked images become a list; another cosine gives other pairs.
        browser.click(".pair .pick")
        assert browser.value("document.querySelector('#save').textContent") == "Save 1 as CSV"
        first = browser.value("document.querySelector('.pair .tile').title")
        assert browser.value("decodeURIComponent(document.querySelector('#save').href).split('\\n')[1]").startswith(
            first
        )
        slide(browser, "#above", 1)
        assert "the closest two have a cosine of 0." in browser.value("document.querySelector('.side p').textContent")
        slide(browser, "#above", 0.95)
        browser.click(".pair .tile")
        browser.until(QUERIED)
        browser.value("history.back()")
        browser.until("document.querySelectorAll('.pair').length > 0")
        browser.click("#home")
        browser.until("document.querySelectorAll('.tile').length == 24")

        # A click: both sides, ranks, ticks for the query's folder.
        browser.click(".tile[title='dots/class1/1.png']")
        browser.until(QUERIED)
        assert status(browser).startswith("The nearest of 23 images, in ")
        assert len(shown(browser, 0)) == len(shown(browser, 1)) == 23
        assert browser.value("document.querySelector('#name').textContent") == "dots/class1/1.png"
        assert browser.value("document.querySelectorAll('.side:first-child .alike').length") == 11
        ranks = browser.value("[...document.querySelectorAll('.side:last-child .rank')].map(s => s.textContent)")
        assert ranks == [*map(str, range(1, 24))]
        browser.until("document.querySelector('#right').textContent.startsWith('Of an image\\'s 10 nearest, ')")
        assert browser.value("document.querySelector('#slider').hidden")  # one way only to compare so few
        assert browser.value("document.querySelector('.side h3').textContent").startswith("encoder")
        assert "✓ 11 of 11 others" in browser.value("document.querySelector('.side h3').innerText")

        # Without the names nothing tells the sides apart, until a click.
        browser.click("#blind")
        browser.until("document.querySelectorAll('.reveal').length == 2")
        assert not browser.value("document.querySelectorAll('.side h3 span, .side .only').length")
        browser.click(".side:last-child .reveal")
        titles = browser.value("[...document.querySelectorAll('.side h3')].map(h => h.textContent)")
        assert sorted(title[:5] for title in titles) == ["encod", "fused"]
        browser.click("#blind")
        browser.until("document.querySelector('.side h3').textContent.startsWith('encoder')")

        # The filters, by mouse and by keyboard.
        browser.click("#tasks label:nth-child(2)")
        browser.until("document.querySelector('#status').textContent.startsWith('The nearest of 12 ')")
        assert all(path.startswith("bars/") for path in shown(browser, 1))
        browser.click("#tasks label:first-child")
        browser.until("document.querySelector('#status').textContent.startsWith('The nearest of 23 ')")
        browser.value("document.activeElement.blur()")
        browser.key("/")
        browser.write("class2")
        browser.until("document.querySelector('#status').textContent.startsWith('The nearest of 8 ')")
        assert {path.split("/")[1] for path in shown(browser, 0)} == {"class2"}

        # Arrows go to a tile, Enter searches for it, Back returns.
        browser.key("Enter")
        assert browser.value("document.activeElement.title") == shown(browser, 0)[0]
        browser.key("ArrowRight")
        second = browser.value("document.activeElement.title")
        assert second == shown(browser, 0)[1]
        browser.key("Enter")
        browser.until(f"document.querySelector('#name').textContent == {second!r}")
        browser.value("history.back()")
        browser.until("document.querySelector('#name').textContent == 'dots/class1/1.png'")

        # A region: drawn, searched for, left by Escape.
        browser.until(QUERIED)
        browser.drag(browser.place("#asked", 0.1, 0.1), browser.place("#asked", 0.5, 0.9))
        browser.until("!document.querySelector('#uncrop').hidden")
        sides = "(of => [of.offsetWidth, of.offsetHeight])(document.querySelector('#{}'))"
        (width, height), whole = browser.value(sides.format("box")), browser.value(sides.format("asked"))
        assert (width, height) == (pytest.approx(0.4 * whole[0], abs=2), pytest.approx(0.8 * whole[1], abs=2))
        assert status(browser).startswith("The nearest of 8 images")
        browser.key("Escape")
        browser.until("document.querySelector('#box').hidden")
        assert status(browser).startswith("The nearest of 8 images")
        browser.key("Escape")
        browser.until("document.querySelectorAll('.side').length == 1")

        # A file from outside, in a format that browsers do not show; then one that is no image.
        with Image.open(photos / "dots/class2/1.png") as image:
            image.save(tmp_path / "dropped.tif")
        browser.drop("header", tmp_path / "dropped.tif")
        browser.until(QUERIED)
        assert browser.value("document.querySelector('#name').textContent") == "dropped.tif"
        assert shown(browser, 1)[0] == "dots/class2/1.png"
        browser.value("location.reload()")
        browser.until(
            "document.readyState == 'complete' && document.querySelector('#name')?.textContent == 'dropped.tif'"
        )
        browser.until(QUERIED)
        assert shown(browser, 1)[0] == "dots/class2/1.png"
        (tmp_path / "note.png").write_text("no image")
        browser.drop("header", tmp_path / "note.png")
        browser.until("document.querySelector('#status').className == 'wrong'")
        assert "not readable as" in status(browser)
        assert browser.value("document.querySelectorAll('.tile').length") == 0
        # The server's answers to what is no image are the only complaints.
        assert {re.sub(r".*(status of \d+).*", r"\1", one) for one in browser.complaints()} <= {"status of 422"}


def test_page__on_a_phone_the_sides_stand_beside_each_other_below_the_query(address: str, photos: Path) -> None:
    with at(address, driven.PHONE) as browser:
        browser.until("document.querySelectorAll('.tile').length == 24")
        assert driven.reaching_out(browser) == []
        browser.click(".tile")
        browser.until(QUERIED)
        browser.until(IDLE)
        assert driven.reaching_out(browser) == []
        first = "[...document.querySelectorAll('.side .tile:first-child img')]"
        left, right = browser.value(f"{first}.map(one => one.getBoundingClientRect().bottom)")
        assert left == right < driven.PHONE[1] and browser.value("scrollY") == 0
        browser.value("location.hash = '#alike'")
        browser.until("document.querySelectorAll('.pair').length > 0")
        assert driven.reaching_out(browser) == []


def test_page__is_closed_without_its_secret(address: str) -> None:
    with at(re.match(r"http://[^/]+/", address)[0]) as browser:
        browser.until("document.body.innerText.includes('open the whole address')")
