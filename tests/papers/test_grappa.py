"""The profile `mrt` says what the paper prints (grappa.csv), or says why not; its runs meet the printed rows."""

from pathlib import Path
from statistics import fmean

import pytest

from polygrain.config.lists import Lists
from polygrain.findings import scores
from polygrain.grappa.report import published
from tests.helpers.printed import is_same, rows, value_of
from tests.helpers.project import ROOT
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


# The differences in docs/results/grappa.md: the table, what is taken, from what.
DIFFERENCES = {
    "one random set less encoder": (2, "one_set", "encoder"),
    "random sets, fused, less encoder": (2, "many_sets", "encoder"),
    "coarsest clusters less the best single k, by test labels": (2, "k256", "k8192"),
    "average fusion less encoder": (2, "average", "encoder"),
    "augmentation less average": (2, "augmentation", "average"),
    "neighbour less average": (2, "neighbour", "average"),
    "neighbour less encoder": (2, "neighbour", "encoder"),
    "unseen: neighbour less encoder": (4, "neighbour", "encoder"),
    "unseen: true labels, all weights, less encoder": (4, "all-full", "encoder"),
    "unseen: true labels, one set, less encoder": (4, "all-one", "encoder"),
}


def test_results__differences_of_the_printed_means_are_rounded_last():
    printed = published.read()
    lines = [line.split("|") for line in (ROOT / "docs/results/grappa.md").read_text(encoding="utf-8").splitlines()]
    shown = {
        cells[1].strip(): float(cells[2]) for cells in lines if len(cells) == 7 and cells[1].strip() in DIFFERENCES
    }
    means = {
        (table, model): fmean(scores["r_precision"] for scores in tasks.values())
        for table, models in printed.items()
        for model, tasks in models.items()
    }
    assert shown == {
        name: round(means[table, one] - means[table, other], 1) for name, (table, one, other) in DIFFERENCES.items()
    }
