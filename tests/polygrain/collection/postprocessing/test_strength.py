"""The choice of a smoothing without labels."""

import numpy as np
import pytest

from polygrain.collection.postprocessing import strength
from polygrain.collection.postprocessing.diffusion import Smoothing, linked
from polygrain.collection.postprocessing.strength import SETTINGS, axes_of, choose, compare, deal, neighbourhoods
from polygrain.compute.vectors import unit_rows
from tests.polygrain.collection.postprocessing.test_diffusion import plain_smoothed, plain_weights

FEW = SETTINGS.model_copy(update={"queries": 8, "neighbours": 5, "strengths": [0.8]})


def clusters(classes=6, per_class=30, dim=24, spread=0.25, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, dim)) / dim**0.5
    rows = np.repeat(centres, per_class, 0) + spread * rng.normal(size=(classes * per_class, dim))
    return unit_rows(rows.astype(np.float32))


def halves_of(rows):
    return deal(rows, axes_of(rows))


def smooth_as(rows, one):
    return linked(rows, rows, one) if one.strength else rows


def test_compare__is_the_share_of_rows_that_both_halves_answer():
    halves = halves_of(clusters(per_class=10))
    result = compare(halves, FEW, [5], [6, 3])
    assert list(result) == [Smoothing(0.0, 5), Smoothing(0.8, 5)]
    for one, shares in result.items():
        expected = []
        for query in range(8):
            answers = []
            for half in halves:
                rows = half[8:]
                if one.strength:
                    rows = unit_rows(plain_smoothed(rows, plain_weights(rows, 5, 3.0), one.strength))
                answers.append(np.argsort(-(rows @ half[query]), kind="stable").tolist())
            expected.append([len(set(answers[0][:depth]) & set(answers[1][:depth])) / depth for depth in (6, 3)])
        np.testing.assert_allclose(shares.T, expected, atol=1e-9)


def test_neighbourhoods__are_the_nearest_of_drawn_rows_and_ask_from_within(monkeypatch):
    rows = clusters()
    assert sorted(neighbourhoods(rows, 8, np.random.default_rng(0))) == list(range(180))
    monkeypatch.setattr(strength, "MOST_ROWS", 50)
    found = neighbourhoods(rows, 8, np.random.default_rng(0)).tolist()
    near = np.argsort(-(rows @ rows[np.random.default_rng(0).choice(180, 5, replace=False)].T), 0)
    assert len(found) == len(set(found)) and set(found) == set(near[:10].ravel().tolist())
    assert set(found[:8]) <= set(near[:5].ravel().tolist())


def test_choose__above_the_limit_the_choice_and_the_score_stay(monkeypatch):
    rows, labels = nested(kinds=12)
    whole = choose(rows, alike=6).smoothing
    monkeypatch.setattr(strength, "MOST_ROWS", 300)
    part = choose(rows, alike=6).smoothing
    assert whole.strength and part.strength
    before, after = precision(rows, labels, whole), precision(rows, labels, part)
    assert after > before - 0.005 and after > precision(rows, labels, strength.NONE) + 0.03


def nested(kinds=6, products=12, photographs=6, dim=40):
    """Rows of products within kinds, and the product of each."""
    rng = np.random.default_rng(0)
    kind = np.repeat(rng.normal(size=(kinds, dim)), products * photographs, 0)
    product = np.repeat(rng.normal(size=(kinds * products, dim)), photographs, 0)
    rows = kind + 0.6 * product + 0.5 * rng.normal(size=kind.shape)
    return unit_rows(rows.astype(np.float32)), np.repeat(np.arange(kinds * products), photographs)


def precision(rows, labels, one, count=6):
    order = np.argsort(-(rows @ smooth_as(rows, one).T), 1)
    return (labels[order[:, :count]] == labels[:, None]).mean()


def test_choose__products_are_smoothed_by_each_other_where_their_size_is_known():
    rows, labels = nested()
    before = precision(rows, labels, strength.NONE)
    assert precision(rows, labels, choose(rows, alike=6).smoothing) > before + 0.03


@pytest.mark.parametrize(("alike", "counts"), [(5, set()), (9, {5}), (20, {5, 10, 20}), (300, {5, 10, 20, 40})])
def test_choose__no_graph_has_more_neighbours_than_are_alike(monkeypatch, alike, counts):
    compared, compare = [], strength.compare
    monkeypatch.setattr(strength, "compare", lambda *given: compared.append(compare(*given)) or compared[-1])
    choose(nested()[0], alike=alike)
    assert {one.neighbours for part in compared for one in part} == counts


def test_choose__what_loses_agreement_among_the_nearest_is_out(monkeypatch):
    """Unless the size of the group is known: then that alone is compared."""
    at_depth, at_guard = {0.0: 0.5, 0.8: 0.6, 0.9: 0.7}, {0.0: 0.5, 0.8: 0.5, 0.9: 0.4}
    noise = {one: np.array([-1, 0, 1]) * (0.02 + one / 100) for one in at_depth}
    known = {Smoothing(one, 5): np.array([at_depth[one] + noise[one], at_guard[one] + noise[one]]) for one in at_depth}
    monkeypatch.setattr(strength, "compare", lambda *_: known)
    assert choose(clusters(), SETTINGS).smoothing.strength == 0.8
    assert choose(clusters(), SETTINGS, alike=30).smoothing.strength == 0.9


def test_deal__halves_share_no_axis_and_are_half_whitened():
    rows = clusters(dim=7)
    first, second = halves_of(rows)
    assert first.shape[1] + second.shape[1] == 7
    centred = rows - rows.mean(0)
    axes = np.linalg.svd(centred, full_matrices=False)[2]
    turned = centred @ axes.T
    turned /= np.square(turned).sum(0) ** 0.25
    for half, start in ((first, 0), (second, 1)):
        np.testing.assert_allclose(np.abs(half), np.abs(unit_rows(turned[:, start::2])), atol=1e-3)


def test_choose__the_fewest_images_that_are_allowed(monkeypatch):
    monkeypatch.setattr(strength, "FEWEST_SMOOTHED", 6)
    assert "needs" not in choose(clusters(2, 3), SETTINGS).why


def test_choose__the_strongest_of_equals(monkeypatch):
    shares = {0.0: [0.5, 0.6, 0.7], 0.5: [0.6, 0.7, 0.8], 0.9: [0.58, 0.72, 0.79], 0.95: [0.3, 0.4, 0.5]}
    known = {Smoothing(strength, 5): np.array([of, of]) for strength, of in shares.items()}
    monkeypatch.setattr(strength, "compare", lambda *_: known)
    assert choose(clusters(), SETTINGS).smoothing == Smoothing(0.9, 5)
    monkeypatch.setattr(strength, "ERRORS", 0.0)
    assert choose(clusters(), SETTINGS).smoothing == Smoothing(0.5, 5)


def test_choose__where_no_smoothing_gains_it_says_so_and_what_would_tell_more(monkeypatch):
    shares = {0.0: [0.7, 0.8, 0.9], 0.5: [0.4, 0.6, 0.5], 0.9: [0.3, 0.2, 0.1]}
    known = {Smoothing(strength, 5): np.array([of, of]) for strength, of in shares.items()}
    monkeypatch.setattr(strength, "compare", lambda *_: known)
    unsaid, said = choose(clusters(), SETTINGS), choose(clusters(), SETTINGS, alike=30)
    assert unsaid.smoothing == said.smoothing == strength.NONE
    assert "alike" in unsaid.why and "alike" not in said.why and "strongest" not in unsaid.why + said.why


@pytest.mark.parametrize(
    "rows", [clusters(classes=1, per_class=3), np.repeat(clusters(classes=1, per_class=1), 120, 0)]
)
def test_choose__few_rows_and_copies_stay_finite(rows):
    chosen = choose(rows)
    assert np.isfinite(smooth_as(rows, chosen.smoothing)).all()
    assert len(rows) > 3 or (chosen.smoothing.strength == 0 and "100 or more" in chosen.why)
