"""Tables of docs/results that show kept numbers."""

import re
from collections import defaultdict
from statistics import fmean

from benchmarks.claims import kept
from benchmarks.claims.__main__ import CSV
from benchmarks.claims.verdict import Value, compare
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


def test_results_of_grappa__are_means_of_the_kept_numbers():
    """A table has its data, a row its model; `minus encoder` is the mean difference, and over seeds its error."""
    page, every = (ROOT / "docs/results/grappa.md").read_text(), kept.read(CSV)
    tables = re.findall(r"^\| `(\w+)`, R-Precision, % \|(.+)\|\n\|[-|: ]+\|\n((?:\|.+\n)+)", page, re.M)
    assert tables
    for data, header, body in tables:
        numbers = defaultdict[tuple[str, str], dict[int, Value]](dict)
        for run in (run for name, run in every.items() if name.startswith(data)):
            for of, by_seed in run.numbers.items():
                numbers[of] |= by_seed
        for model, cells in re.findall(r"^\| `([\w-]+)`[^|]*\|(.+)\|$", body, re.M):
            for column, cell in zip(header.split("|"), cells.split("|"), strict=True):
                quantity, minus, _ = column.strip().partition(", minus encoder")
                if minus and model != "encoder":
                    gain = compare(numbers, model, "encoder", quantity)
                    error = "" if gain.error is None else f" ± {number(gain.error)[1:]}"
                    assert cell.strip() == number(gain.mean) + error
                elif not minus:
                    assert cell.strip() == f"{fmean(value for value, _ in numbers[model, quantity].values()):.1f}"


def number(value: float) -> str:
    """With its sign, to a tenth, and no zero before the point."""
    return re.sub(r"(?<=[+-])0(?=\.)", "", f"{value:+.1f}")
