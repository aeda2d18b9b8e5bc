from itertools import product

import numpy as np
import pytest

from polygrain.findings import paired


def queries(**tasks):
    return {task: {row: {"r_precision": value} for row, value in enumerate(values)} for task, values in tasks.items()}


def exact(differences, *others):
    """Over all ways to give the differences signs, the share of means as far from 0 as theirs, of each task.

    The mean that is farthest from 0 counts, of these differences and of others, with the same signs.
    """
    measured = np.mean([np.mean(own) for own in differences])
    farthest = []
    for all_ in product(*(product((-1, 1), repeat=len(own)) for own in differences)):
        signed = [[np.multiply(*pair).mean() for pair in zip(all_, one, strict=True)] for one in (differences, *others)]
        farthest.append(np.abs(np.mean(signed, 1)).max())
    return np.mean(np.array(farthest) >= abs(measured) - 1e-12)


def test_compare__is_the_share_of_all_signs():
    one, two = [0.3, 0.1, -0.1, 0.4, 0.0, 0.2], [-0.3, 0.1, -0.2, -0.1, 0.05]
    before = queries(one=[0.5] * 6, two=[0.5] * 5)
    after = queries(one=0.5 + np.array(one), two=0.5 + np.array(two))
    found = paired.compare(before, after)
    for name, differences in (("one", [one]), ("two", [two]), ("mean", [one, two])):
        assert found[name].p == pytest.approx(exact(differences), abs=0.015), name
        assert found[name].gain == pytest.approx(100 * np.mean([np.mean(own) for own in differences]))
    assert list(found) == ["mean", "one", "two"] and found["one"].gain > 0 > found["two"].gain


def test_compare__counts_all_models_that_the_queries_could_have_picked():
    ours, other, third = (
        [0.3, 0.1, -0.1, 0.4, 0.1, 0.2],
        [-0.3, 0.3, 0.4, 0.1, -0.2, 0.3],
        [0.5, -0.4, 0.3, 0.1, 0, -0.4],
    )
    before, *rest = (queries(a=0.5 + np.array(values)) for values in ([0.0] * 6, ours, other, third))
    found = [paired.compare(before, rest[0], rest[1:count])["a"] for count in (1, 3)]
    for one, expected in zip(found, (exact([ours]), exact([ours], [other], [third])), strict=True):
        assert one.gain == pytest.approx(100 * np.mean(ours)) and one.p == pytest.approx(expected, abs=0.015)
    assert found[0].p < found[1].p
    asked_less = paired.compare(before, rest[0], [{}, {"a": {0: rest[1]["a"][0]}}])["a"]
    assert asked_less.p == pytest.approx(found[0].p, abs=0.015)


def test_compare__a_gain_of_every_query_is_clear_and_none_is_not():
    before = queries(a=np.linspace(0, 0.5, 40))
    assert paired.compare(before, queries(a=np.linspace(0.1, 0.6, 40)))["a"].is_clear
    same = paired.compare(before, before)["mean"]
    assert same.p == 1 and not same.is_clear


def test_compare__where_both_were_not_asked_the_same():
    before = queries(a=[0.1, 0.2])
    assert paired.compare(before, {"b": before["a"]}) == {}
    assert paired.compare(before, {"a": {5: {"r_precision": 1.0}}}) == {}
