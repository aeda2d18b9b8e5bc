"""The kinds of image sources: a file for each, named as in params.yaml, and described there by its docstring.

A file is imported once its kind is asked for: with it comes whatever reads or draws the images.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from polygrain.sources.datasets.sets import SETS

if TYPE_CHECKING:
    from polygrain.sources.kind import Kind

FILES = {file.stem: file for file in sorted(Path(__file__).parent.glob("[a-z]*.py"))}
KNOWN = (*FILES, *SETS)


def kind_of(source: str) -> "Kind":
    """The kind of a source by its name."""
    if source in FILES:
        return import_module(f"{__name__}.{source}").KIND
    from polygrain.sources.datasets.public import Public

    return Public(source)


def described() -> str:
    """All kinds in words."""
    docs = {name: ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) for name, file in FILES.items()}
    return "; ".join([*(f"{name}: {str(doc).rstrip('.')}" for name, doc in docs.items()), "else a public data set"])
