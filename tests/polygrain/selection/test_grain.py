"""Which last layer an embedding has, and how many of its axes a task uses."""

import numpy as np
import pytest

from polygrain.compute.vectors import unit_rows
from polygrain.retrieval import whitening
from polygrain.selection.grain import GrainSettings, axes_for, choose, compare, cut, fitted, some
from tests.polygrain.retrieval.test_smoothing_choice import nested

SETTINGS = GrainSettings(layers=["turned", "half"], axes=[4, 6, 12, 40], middle=8, images=1000)


def draw(n=60, dim=12, seed=0):
    return np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32) * np.linspace(
        3, 1, dim, dtype=np.float32
    )


def test_compare__is_the_share_of_nearest_that_both_halves_find():
    rows = draw()
    layers = fitted(rows, SETTINGS)
    given = compare(rows, np.arange(60), layers, [4, 6], 5, 1000, 0)
    assert list(given) == [(kind, axes) for kind in ("turned", "half") for axes in (4, 6)]
    for (kind, axes), share in given.items():
        vectors, common = whitening.apply(layers[kind], rows), []
        for row in range(60):
            found = []
            for start in (0, 1):
                half = unit_rows(vectors[:, start:axes:2])
                order = np.argsort(-(half @ half[row]), kind="stable")
                found.append(set(order[order != row][:5].tolist()))
            common.append(len(found[0] & found[1]) / 5)
        assert share == pytest.approx(np.mean(common))


def test_choose__more_images_alike_take_fewer_axes():
    rows, _ = nested()
    tasks, layers = np.repeat("shop", len(rows)), fitted(rows, SETTINGS)
    fine, coarse = (choose(rows, tasks, layers, {"shop": alike}, SETTINGS, 0) for alike in (6, 72))
    assert coarse.axes["shop"] < fine.axes["shop"]
    assert set(fine.agreement["shop"]) == {(kind, axes) for kind in layers for axes in SETTINGS.axes}
    vectors = whitening.apply(layers[fine.layer], rows)
    assert axes_for(vectors, SETTINGS.axes, 6) == fine.axes["shop"]


def test_choose__who_says_nothing_gets_the_gentlest_layer_and_a_middle_grain():
    rows = draw(60)
    tasks = np.repeat(["a", "b"], 30)
    chosen = choose(rows, tasks, fitted(rows, SETTINGS), {}, SETTINGS, 0)
    assert (chosen.layer, chosen.axes, chosen.agreement) == ("turned", {"a": 8, "b": 8}, {})
    one = choose(rows, tasks, fitted(rows, SETTINGS), {"b": 5}, SETTINGS, 0)
    assert one.axes["a"] == 8 and list(one.agreement) == ["b"]


@pytest.mark.parametrize("count", [2, 3, 13])
def test_choose__few_images_have_few_axes(count):
    rows = draw(count)
    chosen = choose(rows, np.repeat("a", count), fitted(rows, SETTINGS), {"a": 300}, SETTINGS, 0)
    assert 1 <= chosen.axes["a"] <= count - 1


def test_fitted__nothing_where_all_are_equal_or_there_is_one():
    assert fitted(np.ones((9, 4), np.float32), SETTINGS) == {} == fitted(np.ones((1, 4), np.float32), SETTINGS)


def test_cut__is_of_unit_length_and_the_first_numbers():
    rows = unit_rows(draw(5))
    np.testing.assert_allclose(cut(rows, 3), unit_rows(rows[:, :3]))
    assert cut(rows, None) is rows and cut(rows, 12) is rows and cut(rows, 99) is rows


def test_some__rows_in_their_order():
    rows, order = draw(), np.array([40, 3, 59, 4])
    np.testing.assert_array_equal(some(rows, order), rows[order])
