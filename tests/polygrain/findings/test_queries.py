import numpy as np

from polygrain.findings import queries

LABELS = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2])


def query(row: int, right: int, r_precision: float) -> dict:
    """A query whose nearest five hold `right` images of its class."""
    same = [other for other in range(len(LABELS)) if LABELS[other] == LABELS[row] and other != row]
    rest = [other for other in range(len(LABELS)) if LABELS[other] != LABELS[row]]
    return {"row": row, "r_precision": r_precision, "nearest": same[:right] + rest[: 5 - right]}


def test_select_queries__gains_of_different_classes_median_and_loss():
    before = {row: query(row, 1, 0.5) for row in range(5)}
    after = {
        0: query(0, 2, 0.9),
        1: query(1, 2, 0.8),  # the second gain, but of the class already shown
        2: query(2, 1, 0.5),
        3: query(3, 1, 0.6),
        4: query(4, 0, 0.1),
    }
    gain, median, loss = "Large gain", "Typical (the median query)", "Largest loss"
    assert queries.select_queries(before, after, LABELS, gains=2) == [(gain, 0), (gain, 3), (loss, 4)]
    assert queries.select_queries(before, after, LABELS, gains=1) == [(gain, 0), (median, 3), (loss, 4)]


def test_changes__counts_better_and_worse():
    before = {0: query(0, 1, 0.5), 3: query(3, 1, 0.5), 6: query(6, 1, 0.5)}
    after = {0: query(0, 1, 0.6), 3: query(3, 1, 0.5), 6: query(6, 1, 0.1)}
    assert queries.changes(before, after) == {"all": 3, "better": 1, "worse": 1}


def test_typical__the_median_of_those_that_changed():
    before = {row: query(row, 1, 0.5) for row in range(7)}
    after = before | {0: query(0, 2, 0.9), 3: query(3, 2, 0.8), 5: query(5, 2, 0.7), 6: query(6, 0, 0.0)}
    assert [row for _, row in queries.typical(before, after, LABELS)] == [3]
    assert [row for _, row in queries.typical(before, before, LABELS)] == [3] and queries.typical({}, {}, LABELS) == []
