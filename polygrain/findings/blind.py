"""A page on which a person judges blindly whether the model or the encoder finds better images."""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from markupsafe import Markup

from polygrain.report import page
from polygrain.report.pictures import pictured


@dataclass(frozen=True)
class BlindComparison:
    """A query with the results of both, pictures of one size; `query` is its name, a path inside the task."""

    task: str
    query: str
    picture: UInt8[np.ndarray, "y x 3"]
    encoder: list[UInt8[np.ndarray, "y x 3"]]  # nearest under the encoder, best first
    model: list[UInt8[np.ndarray, "y x 3"]]  # and under the model


def check(comparisons: Sequence[BlindComparison]) -> None:
    """ValueError where a query comes twice, or where the length of a row would tell whose it is."""
    names = [(one.task, one.query) for one in comparisons]
    for name, one in zip(names, comparisons, strict=True):
        if names.count(name) > 1:
            raise ValueError(f"{name} is compared twice")
        if not len(one.encoder) == len(one.model) > 0:
            raise ValueError(f"{name} has {len(one.encoder)} results of the encoder and {len(one.model)} of the model")


def is_model_first(mark: int) -> bool:
    """Whether the upper row is the model's: an odd number of bits, which a glance at the source does not show."""
    return mark.bit_count() % 2 == 1


def entry(comparison: BlindComparison, mark: int, size: int) -> dict[str, Any]:
    """A comparison as the page stores it: its `key`, the picture of the query, and two rows, the upper one first."""
    rows = [comparison.encoder, comparison.model]
    if is_model_first(mark):
        rows.reverse()
    return {
        "key": {"task": comparison.task, "query": comparison.query, "mark": mark},
        "picture": pictured(comparison.picture, size),
        "rows": [[pictured(pixels, size) for pixels in row] for row in rows],
    }


def write(file: Path, comparisons: Sequence[BlindComparison], size: int, seed: int) -> None:
    """The page of these comparisons, pictures at most `size` pixels wide and high; `seed` draws order and sides."""
    check(comparisons)
    draws = np.random.default_rng(seed)
    order = draws.permutation(len(comparisons)).tolist()
    marks = draws.integers(2**32, size=len(comparisons)).tolist()
    entries = [entry(comparisons[i], mark, size) for i, mark in zip(order, marks, strict=True)]
    code = "\n" + Path(__file__).with_name("blind.js").read_text(encoding="utf-8")
    content = {
        "entries": entries,
        # The browser stores votes under this name, so those for other pictures or another draw do not mix with these.
        "digest": hashlib.sha256(json.dumps(entries).encode()).hexdigest(),
        # The only script of all pages. It holds no names: it reads them from escaped attributes.
        "script": Markup(f"<script>{code}</script>"),
        "script_digest": base64.b64encode(hashlib.sha256(code.encode()).digest()).decode(),
    }
    file.write_text(page.render("findings/blind.html.j2", content), encoding="utf-8")
