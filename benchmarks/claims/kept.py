"""The kept numbers of all runs, docs/faithful/claims.csv; rows of the side `code` hold the digests of their stages."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from filelock import FileLock

from benchmarks.claims.readers import Row
from benchmarks.claims.verdict import Numbers
from polygrain.store.tables import read_csv, write_csv

FIELDS = ("experiment", "seed", "side", "quantity", "value", "error", "commit")


class Kept:
    """What is kept of one experiment."""

    def __init__(self, rows: list[dict[str, str]]) -> None:
        self.commits = {int(row["seed"]): row["commit"] for row in rows}
        self.code: dict[int, set[tuple[str, str]]] = {seed: set() for seed in self.commits}
        numbers: dict[tuple[str, str], dict[int, tuple[float, float | None]]] = {}
        for row in rows:
            seed, of = int(row["seed"]), (row["side"], row["quantity"])
            if row["side"] == "code":
                self.code[seed].add((row["quantity"], row["value"]))
            else:
                error = float(row["error"]) if row["error"] else None
                numbers.setdefault(of, {})[seed] = float(row["value"]), error
        self.numbers: Numbers = numbers

    def changed(self, digests: Mapping[str, str], seeds: Iterable[int] = ()) -> list[str]:
        """The stages that are other ones now than in the runs with these seeds, or with any."""
        return sorted({stage for seed in seeds or self.code for stage, _ in self.code[seed] ^ {*digests.items()}})


def read(file: Path) -> dict[str, Kept]:
    rows = read_csv(file)
    return {
        name: Kept([row for row in rows if row["experiment"] == name]) for name in {row["experiment"] for row in rows}
    }


def add(file: Path, experiment: str, seed: int, rows: list[Row], digests: Mapping[str, str], commit: str) -> None:
    """Puts the numbers of one run in the place of those that it had."""
    content = [("code", stage, value, "") for stage, value in digests.items()]
    content += [(a, b, f"{value:.6g}", "" if error is None else f"{error:.6g}") for a, b, value, error in rows]
    new: list[tuple[str, ...]] = [(experiment, f"{seed}", *row, commit) for row in content]
    with FileLock(f"{file}.lock"):
        old = [tuple(row[field] for field in FIELDS) for row in read_csv(file)]
        old = [row for row in old if row[:2] != (experiment, f"{seed}")]
        write_csv(file, [FIELDS, *sorted(old + new, key=lambda row: (row[0], int(row[1])))])
