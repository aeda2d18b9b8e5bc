import numpy as np

from polygrain.compute.vectors import unit_rows
from polygrain.fisher.split_half import agreements, others
from tests.polygrain.fisher.test_estimator import ROWS

UNITS = unit_rows(ROWS)


def test_agreements__grow_where_layer_and_mean_tell_more_apart():
    means = {name: of.mean() for name, of in agreements(UNITS, 10).items()}
    assert [*means] == ["as they are", "centred", "layer"]
    assert means["layer"] > means["centred"] + 0.01


def test_agreements__of_noise_are_those_of_chance():
    noise = unit_rows(np.random.default_rng(0).normal(size=(300, 40)).astype(np.float32))
    for shares in agreements(noise).values():
        assert abs(shares.mean() - 10 / 299) < 0.02


def test_others__are_the_nearest_but_the_query_even_where_rows_are_equal():
    rows = np.concatenate([UNITS[:50], UNITS[:50]])
    cosines = rows @ rows.T
    for query, found in zip((3, 60), others(rows, np.array([3, 60]), 4), strict=True):
        assert query not in found and len(set(found)) == 4
        others_of = np.delete(np.arange(100), query)
        np.testing.assert_allclose(cosines[query][found], np.sort(cosines[query][others_of])[::-1][:4], rtol=1e-5)
