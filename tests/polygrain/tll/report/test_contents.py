import numpy as np
import pytest

from polygrain.tll.adaptation.results import Study
from polygrain.tll.report import contents

RANKS = {
    "concatenated": {0: {4: 9, 5: 1, 6: 3}, 1: {4: 2, 7: 8, 6: 1}},
    "pca": {0: {4: 8, 5: 1, 6: 2}, 1: {4: 2, 7: 9, 6: 1}},
    "sigma_1": {0: {4: 1, 5: 1, 6: 6}, 1: {4: 1, 7: 7, 6: 1}},
    "sigma_15": {0: {4: 1, 5: 2, 6: 1}, 1: {4: 1, 7: 1, 6: 3}},
}


def study() -> Study:
    recalls = {(row, "last"): 100 * np.array([[0.1, 0.3], [0.3, 0.5]]) for row in RANKS}
    recalls["sigma_15", "best"] = np.array([[40.0, 50.0], [50.0, 60.0]])
    history = [
        {"row": row, "step": str(s), "loss": "2.5", "recall_at_1": "0.25"}
        for row in ("sigma_1", "sigma_15")
        for s in (5, 10)
    ]
    return Study(recalls, RANKS, history)


def test_spread__of_a_row_and_of_what_it_has_not():
    assert study().spread("pca", 1).mean == pytest.approx(20)
    assert study().spread("sigma_15", 2, "best").mean == pytest.approx(55)
    assert study().spread("pca", 1, "best") is None and study().spread("pca", 3) is None


def test_gain__is_paired_and_in_percent():
    found = study().gain("pca", "sigma_15")
    # At k = 1: run 0 gains pairs 4 and 6, loses 5; run 1 gains 4 and 7, loses 6.
    assert found.difference == pytest.approx(100 * 2 / 6)
    assert (found.better, found.runs) == (2, 2)


def test_factors__are_over_the_concatenated_layers_where_both_have_a_recall():
    (found,) = contents.factors(study())
    assert found == {"k": 1, "ours": pytest.approx(1), "printed": 2.25}


def test_queries__show_losses_as_well_as_gains():
    assert contents.queries(study(), "pca", "sigma_15", 2) == [("Large gain", 4), ("Large gain", 6), ("Large loss", 5)]
    assert contents.queries(study(), "pca", "sigma_15", 0) == []
    assert contents.queries(study(), "pca", "pca", 2) == []
