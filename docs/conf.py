"""The site: `make docs` builds it into docs/_build/html from the text here, docstrings, and descriptions of values.

Nothing is fetched, neither while it is built nor by the pages: formulas become MathML, fonts are the reader's own.
"""

import importlib
import sys
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

project = "polygrain"
author = "the authors of polygrain"
project_copyright = ""
extensions = ["myst_parser", "docs.extensions.mathml", "sphinx.ext.autodoc"]
extensions += ["docs.extensions.reference", "docs.extensions.state"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["dollarmath", "amsmath", "attrs_block"]
myst_heading_anchors = 3
myst_dmath_double_inline = True
suppress_warnings = ["myst.strikethrough"]

html_theme = "furo"
html_title = "polygrain"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_math_renderer = "mathml"
html_theme_options = {"navigation_with_keys": True}
highlight_language = "text"
pygments_style = "friendly"
pygments_dark_style = "monokai"
maximum_signature_line_length = 90
add_module_names = False
python_use_unqualified_type_names = True
autodoc_preserve_defaults = True


def draw_figures(app: Sphinx) -> None:
    """Draw docs/figures/*.svg, each by the `draw` of the program beside it."""
    for program in (ROOT / "docs/figures").glob("[!s]*.py"):  # all but style.py
        importlib.import_module(f"docs.figures.{program.stem}").draw(program.with_suffix(".svg"))


def setup(app: Sphinx) -> None:
    app.connect("builder-inited", draw_figures)
