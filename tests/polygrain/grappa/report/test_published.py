import math

import pytest

from polygrain.findings.scores import MEAN, Scores
from polygrain.grappa.report import published

TASKS = ["aircraft", "cars", "cub", "flowers", "food101", "products"]


def numbers(r_precision: float, map_at_r: float) -> dict[str, float]:
    return {"r_precision": r_precision, "map_at_r": map_at_r, "recall_at_1": 0.0}


def make_scores(change: float = 0.0, tasks: list[str] = TASKS) -> Scores:
    """The published encoder row plus `change`, and a row of our own."""
    printed = published.read()[2]["encoder"]
    row = {task: numbers(printed[task]["r_precision"] + change, printed[task]["map_at_r"]) for task in tasks}
    return Scores(tasks, {"encoder": row, "closed_form": {task: numbers(50.0, 40.0) for task in tasks}}, {}, {})


def test_read__every_table_is_complete() -> None:
    tables = published.read()
    assert {number: len(rows) for number, rows in tables.items()} == {2: 15, 3: 19, 4: 5, 5: 2}
    for number, rows in tables.items():
        expected = {"dtd", "eurosat", "pets"} if number == 4 else set(TASKS)
        assert all(set(row) == expected for row in rows.values())
        assert all(n["map_at_r"] < n["r_precision"] for row in rows.values() for n in row.values())
    assert tables[3]["encoder"] == tables[2]["encoder"] and tables[5]["neighbour"] == tables[2]["neighbour"]


def test_compare__ours_published_difference_and_rows_of_our_own() -> None:
    table = published.compare(2, published.read()[2], make_scores(0.25), TASKS, ["encoder", "closed_form"])
    assert table.columns == [*TASKS, MEAN] and list(table.rows)[-1] == "closed_form"
    cell = table.rows["encoder"]["cub"]["r_precision"]
    assert (cell.ours, cell.published, cell.difference) == (33.85, 33.6, 0.25)
    assert table.rows["encoder"][MEAN]["r_precision"].difference == pytest.approx(0.25, abs=0.011)
    assert math.isnan(table.rows["closed_form"]["cub"]["r_precision"].difference)
    assert math.isnan(table.rows["neighbour"]["cub"]["r_precision"].ours) and table.is_measured
    assert not published.compare(5, published.read()[5], make_scores(), TASKS, []).is_measured


@pytest.mark.parametrize(("change", "holds"), [(0.0, True), (-0.5, True), (0.6, False), (-0.6, False)])
def test_check__half_a_point_either_way(change: float, holds: bool) -> None:
    table = published.compare(2, published.read()[2], make_scores(change), TASKS, [])
    check = published.check(table)
    assert check["holds"] is holds and check["difference"] == pytest.approx(change, abs=1e-6)


def test_check__a_missing_task_is_no_match() -> None:
    check = published.check(published.compare(2, published.read()[2], make_scores(tasks=TASKS[:5]), TASKS, []))
    assert check["holds"] is False and check["absent"] == ["products"]
    nothing = published.check(published.compare(2, published.read()[2], Scores([], {}, {}, {}), [], []))
    assert nothing["worst"] is None and nothing["holds"] is False
