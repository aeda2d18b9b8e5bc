import numpy as np
import pytest
from scipy.optimize import linprog

from polygrain.gsp.studies.colours import discs, fill, on_object, reached, weigh


def test_weigh__keeps_red_and_blue_and_for_mu_1_keeps_all():
    pixels, weights = weigh([0.2, 1.0], 20.0)
    assert pixels.shape == (10, 10, 3)
    assert on_object(weights["mu 0.2, P1"]) == pytest.approx(1) and on_object(weights["mu 0.2, P2"]) > 0.9
    assert on_object(weights["mu 1, P2"]) == pytest.approx(0.5, abs=1e-6)
    assert discs().sum((1, 2)).tolist() == [25, 25]
    # As in the paper's Fig. 2, too small a mu: P1 misses most of the object, P2 hardly any of it.
    assert reached(weights["mu 0.2, P1"]) == pytest.approx(0.4) and reached(weights["mu 0.2, P2"]) > 0.9
    assert all(float(p.sum()) == pytest.approx(1, abs=1e-5) for p in weights.values())


def test_fill__is_the_linear_program():
    cost, mu = np.random.default_rng(0).random((3, 20)), 0.33
    solved = linprog(cost.ravel(), np.tile(np.eye(20), 3), np.full(20, 1 / 20), np.ones((1, 60)), [mu])
    assert np.allclose(fill(cost.min(0), mu), solved.x.reshape(3, 20).sum(0) / mu)
