"""Small tables that cross a stage boundary: CSV with every field quoted, and Parquet."""

import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from polygrain.store.drafts import drafted
from polygrain.store.reading import reading, remedy_for, starts_with

COLUMNS_NAMED = 20  # that a message names
PARQUET = b"PAR1"  # the first bytes of such a file


def write_csv(file: Path, rows: Iterable[Sequence[object]]) -> None:
    """Writes the rows, the header first. Every field is quoted: a name may hold a line break of any kind."""
    with drafted(file) as draft, draft.open("w", newline="", encoding="utf-8") as lines:
        csv.writer(lines, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)


def read_csv(file: Path) -> list[dict[str, str]]:
    """A row for each line below the header; ValueError if the file is missing or damaged."""
    with reading(file, remedy_for(file.parent)), file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines, strict=True))


def is_parquet(file: Path) -> bool:
    """Whether a file is a Parquet table, or is to be one by its name."""
    return file.suffix == ".parquet" or (file.is_file() and starts_with(file, PARQUET))


def described(schema: pa.Schema) -> str:
    """Names and types of a table's columns, the first `COLUMNS_NAMED`, as a message shows them."""
    shown = [f"{field.name}: {field.type}" for field in list(schema)[:COLUMNS_NAMED]]
    return ", ".join(shown + [f"and {len(schema) - COLUMNS_NAMED} more"] * (len(schema) > COLUMNS_NAMED)) or "none"


def require_once(schema: pa.Schema, name: str) -> None:
    """ValueError where a table has two columns of one name: nothing says which is meant."""
    twice = [column for column, count in Counter(schema.names).items() if count > 1]
    if twice:
        raise ValueError(
            f"{name} has more than one column {twice[0]!r}; its columns are {described(schema)}: rename all but one"
        )


def read_parquet(file: Path, columns: list[str] | None = None) -> pa.Table:
    """A whole table, or some of its columns; ValueError if it is missing or damaged."""
    with reading(file, remedy_for(file.parent)):
        return pq.read_table(file, columns=columns)
