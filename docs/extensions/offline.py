"""Fails the build where a page would load something from outside: a reader without a network sees all of it."""

import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

# Links to click on are fine; what the browser fetches by itself is not.
FETCHED = re.compile(
    r"<(?:script|img|iframe|source|video|link)\b[^>]*?\b(?:src|href)=[\"'](?:https?:)?//[^\"']*"
    r"|url\([\"']?(?:https?:)?//[^)]*|@import\s+[\"'](?:https?:)?//[^\"']*"
)


def check(app: Sphinx, exception: Exception | None) -> None:
    if exception is not None or app.builder.format != "html":
        return
    out = Path(app.outdir)
    for file in sorted([*out.rglob("*.html"), *out.rglob("*.css")]):
        if met := FETCHED.search(file.read_text(encoding="utf-8")):
            raise ExtensionError(f"{file.relative_to(out)} loads {met[0]!r} from outside; pages must work offline")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
