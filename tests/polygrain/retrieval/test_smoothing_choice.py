"""The choice of a smoothing without labels."""

import numpy as np
import pytest
from pydantic import ValidationError

from polygrain.compute.vectors import unit_rows
from polygrain.retrieval import smoothing_choice
from polygrain.retrieval.smoothing import Smoothing, mixed_with_nearest, smooth_as
from polygrain.retrieval.smoothing_choice import GRAINED, SETTINGS, SmoothingSettings, choose, compare, deal, smooth
from tests.polygrain.retrieval.test_smoothing import plain_smoothed, plain_weights

FEW = SETTINGS.model_copy(update={"queries": 8, "depth": 6, "neighbours": 5, "fewest": 10, "strengths": [0.8]})


def clusters(classes=6, per_class=30, dim=24, spread=0.25, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, dim)) / dim**0.5
    rows = np.repeat(centres, per_class, 0) + spread * rng.normal(size=(classes * per_class, dim))
    return unit_rows(rows.astype(np.float32))


def test_compare__is_the_share_of_rows_that_both_halves_answer():
    halves = deal(clusters(per_class=10), True)
    order = np.random.default_rng(1).permutation(60)
    result = compare(halves, order, FEW, [5], [6, 3])
    assert list(result) == [Smoothing(s, 5, m) for s, m in ((0.0, 0), (0.8, 0), (0.8, 10))]
    for one, shares in result.items():
        expected = []
        for query in range(8):
            answers = []
            for half in halves:
                rows = half[order[8:]]
                rows = smooth_as(rows, one) if one.strength else rows
                asked = mixed_with_nearest(half[order[query : query + 1]], rows, one)
                answers.append(np.argsort(-(rows @ asked[0]), kind="stable").tolist())
            expected.append([len(set(answers[0][:depth]) & set(answers[1][:depth])) / depth for depth in (6, 3)])
        np.testing.assert_allclose(shares.T, expected, atol=1e-9)


def test_compare__each_graph_is_as_if_it_were_alone():
    halves, order = deal(clusters(per_class=10), True), np.random.default_rng(1).permutation(60)
    together = compare(halves, order, FEW, [5, 3], [6])
    for count in (5, 3):
        alone = compare(halves, order, FEW, [count], [6])
        one = Smoothing(0.8, count, 10)
        np.testing.assert_array_equal(together[one], alone[one])


def test_smooth__a_plain_query_asks_what_is_linked_and_smoothed_quarter_whitened():
    vectors = clusters(per_class=8, dim=5) + 1  # all share a direction
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    centred = (unit - unit.mean(0)).astype(float)
    energies, axes = np.linalg.eigh(centred.T @ centred / (len(unit) - 1))
    layer = axes * energies**-0.125
    turned = unit_rows(centred @ layer)
    weights = plain_weights(turned, 4, 3.0)
    back = unit_rows(plain_smoothed(turned, weights, 0.8)) @ layer.T
    mean = unit.mean(0) / np.linalg.norm(unit.mean(0))
    shared = np.square(unit.mean(0)).sum() / np.square(unit @ mean).mean()
    expected = unit_rows(back - shared * np.outer(back @ mean, mean))
    result = smooth(3 * vectors, smoothing=Smoothing(0.8, 4, whitened=True))
    np.testing.assert_allclose(result, expected, atol=5e-3)


def test_smooth__vectors_that_share_much_are_found_more_often():
    rows, labels = nested()
    queries, asked, rows, labels = rows[::6], labels[::6], np.delete(rows, np.s_[::6], 0), np.delete(labels, np.s_[::6])

    def precision(searched, queries=queries + 0.5):
        near = np.argsort(-(queries @ searched.T), 1, kind="stable")[:, :5]
        return (labels[near] == asked[:, None]).mean()

    assert precision(smooth(rows + 0.5, alike=5)) > precision(unit_rows(rows + 0.5)) + 0.02


def test_smooth_as__a_zero_row_stays_where_rows_are_turned():
    rows = clusters(per_class=8, dim=5)
    rows[3] = 0
    result = smooth_as(rows, Smoothing(0.8, 4, whitened=True))
    assert not result[3].any()
    np.testing.assert_allclose(np.linalg.norm(np.delete(result, 3, 0), axis=1), 1, atol=1e-5)


def test_smooth__rows_whose_mean_is_nothing():
    rows = np.concatenate([np.eye(64, dtype=np.float32), -np.eye(64, dtype=np.float32)])
    assert np.isfinite(smooth_as(rows, Smoothing(0.8, 4, whitened=True))).all()


@pytest.mark.parametrize("is_whitened", [True, False])
def test_choose__rows_of_a_layer_that_scales_them_are_not_turned(is_whitened):
    chosen = choose(clusters(), GRAINED, is_whitened=is_whitened, alike=20).smoothing
    assert chosen.strength and chosen.whitened != is_whitened


def test_smooth__equal_vectors_stay():
    rows = np.ones((120, 3), np.float32)
    np.testing.assert_allclose(smooth(rows), unit_rows(rows), atol=1e-6)


def nested(kinds=6, products=12, photographs=6, dim=40):
    """Rows of products within kinds, and the product of each."""
    rng = np.random.default_rng(0)
    kind = np.repeat(rng.normal(size=(kinds, dim)), products * photographs, 0)
    product = np.repeat(rng.normal(size=(kinds * products, dim)), photographs, 0)
    rows = kind + 0.6 * product + 0.5 * rng.normal(size=kind.shape)
    return unit_rows(rows.astype(np.float32)), np.repeat(np.arange(kinds * products), photographs)


def test_choose__products_are_not_smoothed_into_their_kind():
    rows, labels = nested()

    def precision(one):
        order = np.argsort(-(rows @ smooth_as(rows, one).T), 1)
        return (labels[order[:, :6]] == labels[:, None]).mean()

    settings = SETTINGS.model_copy(update={"depth": 70})
    before = precision(smoothing_choice.NONE)
    assert precision(choose(rows, settings).smoothing) < before - 0.02
    assert precision(choose(rows, settings.model_copy(update={"guard": 10})).smoothing) >= before
    assert precision(choose(rows, settings, alike=6).smoothing) > before + 0.03


def test_deal__halves_share_no_axis_and_keep_all():
    rows = clusters(dim=7)
    first, second = deal(rows, True)
    assert first.shape[1] + second.shape[1] == 7
    centred = rows - rows.mean(0)
    axes = np.linalg.svd(centred, full_matrices=False)[2]
    for half, start in ((first, 0), (second, 1)):
        expected = unit_rows(centred @ axes[start::2].T)
        np.testing.assert_allclose(np.abs(half), np.abs(expected), atol=1e-4)


def test_deal__raw_rows_are_half_whitened():
    rows = clusters() * np.float32([5] + [1] * 23)
    first, _ = deal(unit_rows(rows), False)
    plain, _ = deal(unit_rows(rows), True)
    assert np.abs(first[:, 0]).mean() < np.abs(plain[:, 0]).mean()


def test_choose__the_fewest_images_that_are_allowed():
    fewest = SmoothingSettings(**SETTINGS.model_dump() | {"fewest": 6})
    assert len(choose(clusters(2, 3), fewest).agreement) == 9
    with pytest.raises(ValidationError, match="fewest"):
        SmoothingSettings(**SETTINGS.model_dump() | {"fewest": 5})


def test_choose__smooths_clusters_and_finds_more_of_them():
    rows, labels = clusters(spread=0.3), np.repeat(np.arange(6), 30)
    chosen = choose(rows, SETTINGS.model_copy(update={"depth": 30}))
    assert chosen.smoothing.strength >= 0.8 and len(chosen.agreement) == 9

    def precision(gallery):
        return (labels[np.argsort(-(rows @ gallery.T), 1)[:, 1:21]] == labels[:, None]).mean()

    assert precision(smooth_as(rows, chosen.smoothing)) > precision(rows) + 0.02


def test_choose__the_strongest_of_equals(monkeypatch):
    shares = {
        Smoothing(0.0, 5): [0.5, 0.6, 0.7],
        Smoothing(0.5, 5): [0.6, 0.7, 0.8],
        Smoothing(0.9, 5): [0.58, 0.72, 0.79],
    }
    shares |= {Smoothing(0.95, 5): [0.3, 0.4, 0.5]}
    monkeypatch.setattr(smoothing_choice, "compare", lambda *_: {one: np.array([of, of]) for one, of in shares.items()})
    assert choose(clusters(), SETTINGS).smoothing == Smoothing(0.9, 5)
    assert choose(clusters(), SETTINGS.model_copy(update={"errors": 0.0})).smoothing == Smoothing(0.5, 5)


@pytest.mark.parametrize(
    "rows", [clusters(classes=1, per_class=3), np.repeat(clusters(classes=1, per_class=1), 120, 0)]
)
def test_choose__few_rows_and_copies_stay_finite(rows):
    chosen = choose(rows)
    assert np.isfinite(smooth_as(rows, chosen.smoothing)).all()
    assert len(rows) > 3 or (chosen.smoothing.strength == 0 and "3 images are too few" in chosen.why)
