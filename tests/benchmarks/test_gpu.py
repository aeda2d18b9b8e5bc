import json
import math

import pytest
import torch

from benchmarks import gpu


@pytest.mark.slow
@pytest.mark.parametrize("part", ["encoder", "vectors"])
def test_gpu__each_part_runs_without_one(part):
    rows = list(gpu.PARTS[part](torch.device("cpu"), True))
    assert rows and all(row["rate"] > 0 and row["what"] and row["unit"] for row in rows)
    json.dumps(rows)


def test_table__has_a_line_for_each_row_and_names_what_is_missing():
    rows = [
        {"what": "a", "rate": 1234.5, "unit": "images/s", "limit": 0.5, "peer": "b", "ratio": 0.97, "memory": math.nan},
        {"what": "c", "rate": 2.0, "unit": "s"},
    ]
    text = gpu.table(rows, "A card", ["vectors (failed)"])
    assert "| a | 1,234 | images/s | 50% | b | 0.97 |  |" in text and "| c | 2 | s |  |  |  |  |" in text
    assert text.startswith("A card, torch ") and text.endswith("Not measured: vectors (failed).\n")


def test_results__have_the_two_marks():
    text = gpu.RESULTS.read_text(encoding="utf-8")
    assert text.count(gpu.BEGIN) == text.count(gpu.END) == 1 and text.index(gpu.BEGIN) < text.index(gpu.END)
