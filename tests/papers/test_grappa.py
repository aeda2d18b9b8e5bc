"""The profile `mrt` says what the paper prints (grappa.csv), or says why not; its runs meet the printed rows."""

from pathlib import Path

import pytest

from polygrain.config.lists import Lists
from polygrain.findings import scores
from polygrain.grappa.report import published
from tests.helpers.printed import is_same, rows, value_of
from tests.test_profiles import composed

ROWS = rows(Path(__file__).with_name("grappa.csv"))


def met(row):
    value = value_of(row["profile"], row["key"])
    return " ".join(name.removeprefix("k") for name in value) if row["key"] == "granularities" else value


@pytest.mark.parametrize("row", ROWS, ids=[row["key"] for row in ROWS])
def test_profile__has_the_printed_value_or_a_reason(row):
    assert is_same(row["value"], met(row)), f"{row['key']} is {met(row)}"
    assert is_same(row["printed"], met(row)) != bool(row["why"])


def test_rows__name_each_key_once():
    assert len({(row["profile"], row["key"]) for row in ROWS}) == len(ROWS)


@pytest.fixture(scope="module")
def lists() -> Lists:
    return Lists(**{name: value for name, value in composed("mrt").items() if name in Lists.model_fields})


def test_published__each_row_meets_the_run_of_its_table(lists):
    """What a row is named after, it is: its clusters, its pairs, its random sets, and what it was trained on."""
    tasks = [name for name, task in lists.tasks.items() if not task.unseen]
    assert all(task.source == name for name, task in lists.tasks.items())
    supervised = {
        number: [name for name, item in lists.supervised_models.items() if (item.on == "all") == (number == 4)]
        for number in (3, 4)
    }
    assert all(name == f"{item.on}-{item.how}" for name, item in lists.supervised_models.items())
    wanted = {
        2: ["encoder", "one_set", "many_sets", *lists.granularities, "oracle", "average", "augmentation", "neighbour"],
        3: ["encoder", *supervised[3]],
        4: ["encoder", *supervised[4], "neighbour"],
        5: ["neighbour", "supervised"],
    }
    printed = published.read()
    assert {number: list(row) for number, row in printed.items()} == wanted
    assert all(name == f"k{size}" for name, size in lists.clusters(1).items())
    for number, row in printed.items():
        unseen = [name for name in lists.tasks if name not in tasks]
        assert all(list(numbers) == (unseen if number == 4 else tasks) for numbers in row.values())
        assert all(name in lists.models for name in row if name != "oracle")
    assert len(set(lists.models.values())) == len(lists.models)


def test_gains__are_the_rows_that_the_paper_derives():
    """The rows "vs. DINO" of Table 2, "drop versus DINO" and "gains over best adapted" of Table 4."""
    tables = published.read()
    nothing = scores.Scores([], {}, {}, {})
    derived = {n: published.gains(published.compare(n, tables[n], nothing, [], [])) for n in (2, 4)}
    printed = rows(Path(__file__).with_name("grappa_derived.csv"))
    assert len(printed) == 24
    for row in printed:
        cells = derived[int(row["table"])][f"Neighbour fusion less {row['less']}"]
        assert round(cells[row["task"]][row["metric"]].published, 1) == float(row["points"]), row
