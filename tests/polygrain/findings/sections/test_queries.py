from fractions import Fraction
from pathlib import Path

import numpy as np

from polygrain.findings.sections import queries
from polygrain.findings.sections.queries import Compared
from polygrain.store import arrays

LABELS = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2])


def compared(row: int, more: int, seen: int | None = None) -> Compared:
    """So many more of 100 are right, and of the pictures `seen` more, or one in the same direction."""
    return Compared(row, 100, (50, 50 + more), (2, 2 + (int(np.sign(more)) if seen is None else seen)))


def rows(found: list) -> list[int]:
    return [one.row for *_, one in found]


def test_compare__is_a_slow_count_in_the_order_of_r_precision():
    rng = np.random.default_rng(0)
    labels, searched = rng.integers(-1, 4, 60), rng.random(60) < 0.7
    lists = {i: [j for j in rng.permutation(60) if searched[j] and j != i] for i in range(60) if labels[i] >= 0}
    expected, sides = [], ({}, {})
    for row, before in lists.items():
        after = rng.permutation(before)
        r = sum(labels[j] == labels[row] for j in before)
        right = [sum(labels[j] == labels[row] for j in nearest[:r]) for nearest in (before, after)]
        seen = [sum(labels[j] == labels[row] for j in nearest[: min(5, r)]) for nearest in (before, after)]
        for side, nearest, hits in zip(sides, (before, after), right, strict=True):
            side[row] = {"row": row, "r_precision": float(np.float32(hits / r)), "nearest": list(nearest[:5])}
        expected.append((-Fraction(right[1] - right[0], r), row, (row, r, tuple(right), tuple(seen))))
    found = queries.compare(*sides, labels, searched)
    assert [tuple(one) for one in found] == [one for *_, one in sorted(expected)]
    gains = [one.gain for one in found]
    counts = {"all": len(lists), "better": sum(g > 0 for g in gains), "worse": sum(g < 0 for g in gains)}
    assert queries.changes(found) == counts | {"same": gains.count(0)} and min(counts.values()) > 0


def test_typical__is_the_median_or_one_of_the_tenth_around_it_that_shows_the_same():
    order = [compared(row, 60 - row) for row in range(41)]
    assert order[queries.typical(order)].row == 20
    order[20] = compared(20, 40, seen=-1)
    assert order[queries.typical(order)].row == 19
    order[18:23] = [compared(row, 60 - row, seen=0) for row in range(18, 23)]
    assert order[queries.typical(order)].row == 20


def test_typical__goes_no_better_way_than_the_median():
    """Beside queries that gain: a median that falls is shown by one that falls, one that stays by one that stays."""
    falls = [compared(row, 19 - row, seen=0 if row == 20 else None) for row in range(41)]
    stays = [compared(row, max(0, 19 - row), seen=row == 20) for row in range(41)]
    assert falls[queries.typical(falls)].row == 21 and stays[queries.typical(stays)].ways == {0}
    assert queries.typical([compared(0, 9), compared(1, -9)]) == 1


def test_select_queries__as_many_losses_as_gains_of_different_classes():
    changes = {0: 9, 1: 8, 3: 7, 6: 6, 4: 0, 5: -1, 2: -2, 7: -3, 8: -4}
    order = [compared(row, more) for row, more in changes.items()]
    selected = queries.select_queries(order, LABELS, 2)
    assert rows(selected) == [0, 3, 4, 2, 8] and [reason for reason, _ in selected][2] == queries.MEDIAN
    assert rows(queries.select_queries(order, LABELS, 3)) == [0, 3, 6, 4, 5, 2, 8]
    assert rows(queries.select_queries(order[:6], LABELS, 3)) == [0, 6, 5]
    assert rows(queries.select_queries(order[:5], LABELS, 3)) == [0, 3, 6]
    assert rows(queries.select_queries(order, LABELS, 0)) == [4]


def test_first_screen__the_median_of_all_tasks_and_their_largest_gain_and_loss():
    a, c = [[compared(row, more) for row, more in enumerate(changes)] for changes in ((30, 10, -5), (40, 0, -9))]
    orders = {"a": a, "b": [compared(7, 5)], "c": c}
    found = [(task, query.row) for task, _, query in queries.first_screen(orders)]
    assert found == [("b", 7), ("c", 0), ("c", 2)]
    assert rows(queries.first_screen({"a": a})) == [1, 0, 2]
    assert rows(queries.first_screen({"b": orders["b"]})) == [7] and queries.first_screen({}) == []
    unchanged = [compared(row, more) for row, more in enumerate([9, 7, 5, *[0] * 9, -2])]
    (_, reason, median), *_ = queries.first_screen({"d": unchanged})
    assert median.row == 2 and "4 of 13" in reason


def test_show__no_more_pictures_than_are_relevant(tmp_path: Path):
    arrays.write(tmp_path / "pixels.zarr", np.zeros((9, 4, 4, 3), np.uint8))
    side = {0: {"row": 0, "r_precision": 0.5, "nearest": [1, 3, 4, 5, 2]}}
    one = Compared(0, 2, (1, 1), (1, 1))
    (entry,) = queries.show(tmp_path, LABELS, list("aaabbbccc"), [("x", side), ("y", side)], [("r", one)], 16)
    marks = [[item["is_right"] for item in listed["results"]] for listed in entry["lists"]]
    assert marks == [[True, False]] * 2 and [listed["right"] for listed in entry["lists"]] == [1, 1]
