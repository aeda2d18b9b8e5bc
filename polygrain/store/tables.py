"""Small tables that cross a stage boundary: CSV with every field quoted, and Parquet."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from polygrain.store.reading import reading, remedy_for


def write_csv(file: Path, rows: Iterable[Sequence[object]]) -> None:
    """Writes the rows, the header first. Every field is quoted: a name may hold a line break of any kind."""
    with file.open("w", newline="", encoding="utf-8") as lines:
        csv.writer(lines, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)


def read_csv(file: Path) -> list[dict[str, str]]:
    """A row for each line below the header; ValueError if the file is missing or damaged."""
    with reading(file, remedy_for(file.parent)), file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines, strict=True))


def read_parquet(file: Path, columns: list[str] | None = None) -> pa.Table:
    """A whole table, or some of its columns; ValueError if it is missing or damaged."""
    with reading(file, remedy_for(file.parent)):
        return pq.read_table(file, columns=columns)
