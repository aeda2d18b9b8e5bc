"""A real browser, without a window."""

import shutil
import subprocess

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-headless-shell", "google-chrome"))), None)


def browse(address: str, *what: str) -> str:
    """What headless Chromium prints about a page whose scripts had 25 (virtual) seconds."""
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--enable-unsafe-swiftshader",
    ]
    options += ["--window-size=1400,1100", "--virtual-time-budget=25000"]
    done = subprocess.run([CHROMIUM, *options, *what, address], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
