"""Formulas as MathML, which browsers draw themselves: MathJax, the usual way, would be fetched from a server."""

import re

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

# Written \tag{4}, as the paper numbers it; MathML has no such thing.
TAG = re.compile(r"\\tag\{([^}]*)\}")


def inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def block(translator: HTML5Translator, node: nodes.math_block) -> None:
    text = node.astext().strip()
    number = get_node_equation_number(translator, node) if node["number"] else ""
    if tag := TAG.search(text):
        number, text = tag[1], TAG.sub("", text).strip()
    beside = f'<span class="eqno">({number})</span>' if number else ""
    translator.body.append(translator.starttag(node, "div", CLASS="math"))
    translator.body.append(f"{convert(text, display='block')}{beside}</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
