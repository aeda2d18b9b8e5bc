"""Draws docs/figures/*.svg before the pages are read: each by the `draw` of the program beside it."""

import importlib
from pathlib import Path

from sphinx.application import Sphinx

FIGURES = Path(__file__).parent.parent / "figures"


def draw_all(app: Sphinx) -> None:
    import matplotlib

    matplotlib.use("Agg")
    for program in sorted(FIGURES.glob("*.py")):
        if program.stem == "style":
            continue
        target = program.with_suffix(".svg")
        newest = max(program.stat().st_mtime, (FIGURES / "style.py").stat().st_mtime)
        if not target.exists() or target.stat().st_mtime < newest:
            importlib.import_module(f"docs.figures.{program.stem}").draw(target)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", draw_all)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
