"""The numbers of all models among the classes."""

from polygrain.findings import wording
from polygrain.findings.chosen import ENCODER
from polygrain.findings.outcome import Content, Outcome


def content(found: Outcome) -> Content:
    table = found.table
    return {
        "scores": table,
        "columns": table.shown,
        "model": found.model,
        "best": wording.best_rows(table),
        "has_encoder": ENCODER in table.rows,
    }
