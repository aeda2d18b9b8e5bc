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
