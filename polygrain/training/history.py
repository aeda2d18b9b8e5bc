"""The log of a training run: a row for each epoch, as `history.csv` in its output folder."""

import csv
from pathlib import Path

from polygrain.store.reading import reading, remedy_for


def write_history(history: list[dict[str, int | float]], folder: Path, columns: list[str]) -> None:
    """The rows of `loop.fit`, one line each; a column may begin later than the others."""
    lines = [",".join(columns)]
    lines += [",".join(f"{row[name]:.6g}" if name in row else "" for name in columns) for row in history]
    (folder / "history.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_history(folder: Path) -> list[dict[str, float]]:
    """The rows again, {column: value}; none where nothing is trained. ValueError if the file is missing or damaged."""
    file = folder / "history.csv"
    with reading(file, remedy_for(folder)), file.open(newline="", encoding="utf-8") as lines:
        header, *rows = csv.reader(lines)
        return [{key: float(text) for key, text in zip(header, row, strict=True) if text} for row in rows]
