"""A headless browser that does what a person does: keys, clicks, drags, files, through its own debugging pipe."""

import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-headless-shell", "google-chrome"))), None)
WORDS = ("headless", "no-sandbox", "disable-dev-shm-usage", "disable-gpu", "hide-scrollbars", "no-first-run")
KEYS = {"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "/": 191}
PATIENCE = 60  # seconds
PHONE = (390, 844)
needed = pytest.mark.skipif(CHROMIUM is None, reason="no browser is installed here: apt-get install chromium")


class Driven:
    """One tab. Every call waits until the browser has done it."""

    def __init__(self, size: tuple[int, int] = (1400, 1000)) -> None:
        self.size, self.numbers, self.rest, self.events = size, itertools.count(1), b"", []

    def __enter__(self) -> "Driven":
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self.out = os.pipe()
        self.into, theirs_out = os.pipe()
        options = [f"--{word}" for word in WORDS]
        options += [f"--user-data-dir={self.profile.name}", f"--window-size={self.size[0]},{self.size[1]}"]
        # The browser reads its orders from descriptor 3 and answers on 4; the shell puts them there.
        script = f'exec 3<&{theirs_in} 4>&{theirs_out}; exec "$0" "$@"'
        command = ["bash", "-c", script, CHROMIUM, *options, "--remote-debugging-pipe", "about:blank"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, pass_fds=(theirs_in, theirs_out), start_new_session=True, **quiet)
        os.close(theirs_in), os.close(theirs_out)
        self.session = None
        tab = next(one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=tab["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "DOM", "Log"):
            self.call(f"{domain}.enable")
        metrics = {"width": self.size[0], "height": self.size[1], "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.session = None
        try:
            self.call("Browser.close")
            self.process.wait(10)
        except (subprocess.TimeoutExpired, OSError, AssertionError):
            self.process.kill()
            self.process.wait()
        os.close(self.out), os.close(self.into)
        self.profile.cleanup()

    def call(self, method: str, **parameters: object) -> dict:
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        for answer in self.messages():
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.events.append(answer)
        raise AssertionError(f"{method}: the browser is gone")

    def messages(self) -> Iterator[dict]:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            while b"\0" in self.rest:
                whole, self.rest = self.rest.split(b"\0", 1)
                yield json.loads(whole)
            if select.select([self.into], [], [], 1)[0]:
                more = os.read(self.into, 1 << 20)
                if not more:
                    return
                self.rest += more

    def go(self, address: str) -> None:
        self.call("Page.navigate", url=address)

    def value(self, expression: str) -> object:
        """What an expression of the page's own language is."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def until(self, expression: str) -> object:
        """Waits until it is true, and returns what it is then."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                if found := self.value(expression):
                    return found
            except AssertionError as error:
                if "navigated" not in str(error):  # a page that is just replaced has no answer yet
                    raise
            time.sleep(0.05)
        raise AssertionError(f"never true: {expression}; the page says: {self.value('document.body.innerText')}")

    def place(self, selector: str, x: float = 0.5, y: float = 0.5) -> tuple[float, float]:
        """A point of an element, by its share of width and height."""
        script = f"""(element => {{
            element.scrollIntoViewIfNeeded();
            const box = element.getBoundingClientRect();
            return [box.x + box.width * {x}, box.y + box.height * {y}];
        }})(document.querySelector({json.dumps(selector)}))"""
        return tuple(self.value(script))

    def mouse(self, kind: str, at: tuple[float, float], buttons: int = 0) -> None:
        button = "none" if kind == "mouseMoved" else "left"
        self.call("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button=button, buttons=buttons, clickCount=1)

    def click(self, selector: str) -> None:
        at = self.place(selector)
        self.mouse("mousePressed", at, 1)
        self.mouse("mouseReleased", at)

    def drag(self, start: tuple[float, float], end: tuple[float, float], release: bool = True) -> None:
        self.mouse("mouseMoved", start)
        self.mouse("mousePressed", start, 1)
        for share in (0.3, 0.7, 1):
            at = tuple(a + share * (b - a) for a, b in zip(start, end, strict=True))
            self.mouse("mouseMoved", at, 1)
        if release:
            self.mouse("mouseReleased", end)

    def key(self, name: str) -> None:
        parameters = {"key": name, "windowsVirtualKeyCode": KEYS[name]}
        text = {"Enter": "\r", "/": "/"}.get(name)
        self.call("Input.dispatchKeyEvent", type="keyDown", **parameters, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **parameters)

    def write(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def drop(self, selector: str, *files: Path) -> None:
        """Drops files from outside onto an element."""
        (x, y), dragged = self.place(selector), {"items": [], "files": list(map(str, files)), "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.call("Input.dispatchDragEvent", type=kind, x=x, y=y, data=dragged)

    def complaints(self) -> list[str]:
        """What the console holds against the page: errors, and what its policy refused."""
        self.value("1")
        logged = [event["params"] for event in self.events if event.get("method") == "Log.entryAdded"]
        thrown = [event["params"] for event in self.events if event.get("method") == "Runtime.exceptionThrown"]
        return [one["entry"]["text"] for one in logged if one["entry"]["level"] == "error"] + [
            str(one) for one in thrown
        ]


@contextmanager
def at(address: str, size: tuple[int, int] = (1400, 1000)) -> Iterator[Driven]:
    """A browser that has opened an address."""
    with Driven(size) as browser:
        browser.go(address)
        yield browser


def reaching_out(browser: Driven) -> list[str]:
    """Elements that reach out of their card or of the window; inside a frame that scrolls they may."""
    return browser.value("""(() => {
        for (const one of document.querySelectorAll("details")) one.open = true;
        const name = ({ tagName, textContent }) => `${tagName} ${textContent.trim().slice(0, 40)}`;
        return [...document.querySelectorAll("body *")].filter((one) => {
            for (let over = one.parentElement; over; over = over.parentElement)
                if (/auto|scroll/.test(getComputedStyle(over).overflowX)) return false;
            const inner = one.getBoundingClientRect();
            const outer = (one.parentElement.closest("section") ?? document.documentElement).getBoundingClientRect();
            return inner.width && (inner.left < outer.left - 1 || inner.right > outer.right + 1);
        }).map(name);
    })()""")


def out_of_a_phone(page: Path) -> list[str]:
    """What of a finished page reaches out, on a window as wide as a phone's."""
    with at(page.as_uri(), PHONE) as browser:
        browser.until("document.readyState == 'complete'")
        return reaching_out(browser)
