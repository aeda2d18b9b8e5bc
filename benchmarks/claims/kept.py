"""The kept numbers of all runs, docs/faithful/claims.csv; a row of the side `code` holds the digest of a stage."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock

from benchmarks.claims.readers import Row
from benchmarks.claims.verdict import Value
from polygrain.store.tables import read_csv, write_csv

FIELDS = ("experiment", "seed", "side", "quantity", "value", "error", "commit")


@dataclass
class Kept:
    """What is kept of one experiment."""

    commits: dict[int, str] = field(default_factory=dict)
    code: dict[int, set[tuple[str, str]]] = field(default_factory=lambda: defaultdict(set))
    numbers: dict[tuple[str, str], dict[int, Value]] = field(default_factory=lambda: defaultdict(dict))

    def changed(self, digests: Mapping[str, str], seeds: Iterable[int] = ()) -> list[str]:
        """The stages that are other ones now than in the runs with these seeds, or with any."""
        return sorted({stage for seed in seeds or self.code for stage, _ in self.code[seed] ^ {*digests.items()}})


def read(file: Path) -> dict[str, Kept]:
    result: dict[str, Kept] = defaultdict(Kept)
    for row in read_csv(file):
        kept, seed, of = result[row["experiment"]], int(row["seed"]), (row["side"], row["quantity"])
        kept.commits[seed] = row["commit"]
        if row["side"] == "code":
            kept.code[seed].add((row["quantity"], row["value"]))
        else:
            kept.numbers[of][seed] = float(row["value"]), float(row["error"]) if row["error"] else None
    return result


def add(file: Path, experiment: str, seed: int, rows: list[Row], digests: Mapping[str, str], commit: str) -> None:
    """Puts the numbers of one run in the place of those that it had."""
    run = (experiment, f"{seed}")
    new = [(*run, "code", stage, value, "", commit) for stage, value in digests.items()]
    for side, quantity, value, error in rows:
        new.append((*run, side, quantity, f"{value:.6g}", "" if error is None else f"{error:.6g}", commit))
    with FileLock(f"{file}.lock"):
        old = [tuple(row.values()) for row in read_csv(file) if (row["experiment"], row["seed"]) != run]
        write_csv(file, [FIELDS, *sorted([*old, *new], key=lambda row: (row[0], int(row[1])))])
