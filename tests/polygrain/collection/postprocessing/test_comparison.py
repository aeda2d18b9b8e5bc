"""How a collection is compared, against loops over its rows."""

import tracemalloc

import numpy as np
import pytest

from polygrain.collection.postprocessing import comparison
from polygrain.collection.postprocessing.comparison import Comparison, choose, directions, mean_of
from polygrain.collection.postprocessing.diffusion import Smoothing
from polygrain.compute import blocks
from polygrain.compute.vectors import unit_rows
from tests.polygrain.collection.postprocessing.test_diffusion import plain_smoothed, plain_weights, turned

ONE = Smoothing(0.8, 4)


def shared(n=120, dim=5, seed=0):
    """Rows that all have a direction in common."""
    return unit_rows(np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32) + 1)


def less(mean, row):
    rest = [value - common for value, common in zip(row.tolist(), mean, strict=True)]
    return np.array(rest) / sum(value**2 for value in rest) ** 0.5


def smoothed_by_hand(rows, mean, by):
    weights = plain_weights(turned(by), ONE.neighbours, ONE.power)
    return unit_rows(plain_smoothed(np.array([less(mean, row) for row in rows]), weights, ONE.strength))


def test_query__is_less_the_mean_and_of_unit_length():
    rows = shared()
    mean = tuple(np.mean(rows, 0).tolist())
    expected = [less(mean, row) for row in rows]
    np.testing.assert_allclose(Comparison(mean).query(rows), expected, atol=1e-5)
    np.testing.assert_allclose(Comparison(mean).plain(rows), expected, atol=1e-5)
    assert Comparison().query(rows) is rows


def test_uncentred__gives_back_what_was_centred():
    rows = shared()
    for mean in (mean_of(rows), tuple((-0.9 * rows[0]).tolist()), ()):
        one = Comparison(mean)
        np.testing.assert_allclose(one.uncentred(one.query(rows)), rows, atol=1e-5)


def test_query__refuses_vectors_of_another_dimension():
    for dim in (1, 4):
        with pytest.raises(ValueError, match="mean"):
            Comparison((0.5,) * dim).query(shared())


def test_query__costs_no_copy_but_the_result(monkeypatch):
    """Of rows in a mapped file, of which there may be more than fit into memory twice."""
    rows = shared(20_000, 64)
    one = Comparison(mean_of(rows))
    centred = unit_rows(rows - np.array(one.mean, np.float32))
    monkeypatch.setattr(blocks, "BLOCK_VALUES", 2**14)
    for change in (one.query, one.rows):
        tracemalloc.start()
        found = change(rows)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        np.testing.assert_array_equal(found, centred)
        assert peak < 1.5 * rows.nbytes


def test_rows__are_centred_and_smoothed():
    rows = shared()
    mean = mean_of(rows)
    one = Comparison(mean, ONE)
    np.testing.assert_allclose(one.rows(rows), smoothed_by_hand(rows, mean, rows), atol=5e-3)
    np.testing.assert_array_equal(one.unsmoothed().rows(rows), one.plain(rows))
    np.testing.assert_array_equal(Comparison((), ONE).rows(rows[:1]), rows[:1])


def test_rows__are_linked_by_what_stood_in_front():
    rows, before = shared(), shared(seed=1)
    mean = mean_of(rows)
    expected = smoothed_by_hand(rows, mean, before)
    np.testing.assert_allclose(Comparison(mean, ONE).rows(rows, lambda _: before), expected, atol=5e-3)


@pytest.mark.parametrize("one", [Comparison(), Comparison((0.25, -1e-7), Smoothing(0.95, 40), 6)])
def test_json__gives_the_same_value(one):
    assert Comparison.from_json(one.to_json()) == one


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"mean": [NaN]}', '{"mean": null}', '{"alike": 1}', '{"smoothing": {"strength": 1}}',
     '{"smoothing": {"neighbours": 0}}'],
)  # fmt: skip
def test_json__refuses_what_no_comparison_is(text):
    with pytest.raises(ValueError, match="Comparison"):
        Comparison.from_json(text)


def test_mean_of__few_and_equal_vectors_have_none():
    rows = shared(comparison.FEWEST_CENTRED)
    np.testing.assert_allclose(mean_of(rows), [np.mean(column) for column in rows.T], atol=1e-6)
    assert mean_of(rows[1:]) == mean_of(np.repeat(rows[:1], 200, 0)) == ()


def test_choose__the_smoothing_is_by_what_stood_in_front():
    rng = np.random.default_rng(0)
    centres = np.repeat(rng.normal(size=(6, 24)), 30, 0)
    kinds = unit_rows((centres + 1.2 * rng.normal(size=(180, 24))).astype(np.float32))
    noise = unit_rows(rng.normal(size=(180, 24)).astype(np.float32))
    found, _ = choose(noise, 30, front=lambda _: kinds)
    expected, chosen = choose(kinds, 30)
    assert found.smoothing == expected.smoothing == chosen.smoothing and found.smoothing.strength
    assert found.alike == 30 and found.mean == mean_of(noise) and expected.mean == mean_of(kinds)
    assert choose(kinds, mean=(0.5,) * 24)[0].mean == (0.5,) * 24


@pytest.mark.parametrize("value", [0, np.nan, np.inf])
def test_directions__names_a_row_that_says_nothing(value):
    rows = shared()
    rows[7] = value
    with pytest.raises(ValueError, match="row 7"):
        directions(rows)
