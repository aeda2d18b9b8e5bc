import pytest

from polygrain.gsp.studies.colours import inside, on_object, weigh


def test_weigh__keeps_the_object_and_for_mu_1_keeps_all():
    pixels, weights = weigh([0.2, 1.0], 20.0)
    assert pixels.shape == (16, 16, 3)
    assert on_object(weights[0.2]) > 0.99
    assert on_object(weights[1.0]) == pytest.approx(inside().mean(), abs=1e-6)
    assert all(float(p.sum()) == pytest.approx(1, abs=1e-5) for p in weights.values())
