"""Tables of docs/results that show kept numbers, a run in each row and its seeds in each cell."""

import re

from benchmarks.claims import kept
from benchmarks.claims.__main__ import CSV
from tests.helpers.project import ROOT

DIGITS = {"linear": 1, "r_precision": 1, "alignment": 2, "uniformity": 2, "effective_rank": 1}


def test_results_of_mpcl__are_the_kept_numbers():
    numbers, page = kept.read(CSV), (ROOT / "docs/results/mpcl.md").read_text()
    rows = re.findall(r"^\| `(mpcl-\w+)` `([\w ]+)` [^|]*\|(.+)\|$", page, re.M)
    assert rows
    for experiment, run, cells in rows:
        for (column, digits), cell in zip(DIGITS.items(), cells.split("|"), strict=True):
            values = numbers[experiment].numbers[run, column]
            assert [float(value) for value in cell.split(",")] == [
                float(f"{value:.{digits}f}") for value, _ in values.values()
            ]


def test_results_of_gsp__are_kept_numbers():
    """Each cell of the collages has the numbers by seed of some run."""
    every = (run for experiment in kept.read(CSV).values() for run in experiment.numbers.values())
    known = {tuple(f"{value:.1f}" for value, _ in run.values()) for run in every}
    page = (ROOT / "docs/results/gsp.md").read_text().split("## Photographs")[0]
    cells = re.findall(r"(?<=\| )[\d.]+(?: / [\d.]+)+(?= \|)", page)
    assert cells and all(tuple(cell.split(" / ")) in known for cell in cells)
