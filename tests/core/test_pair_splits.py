import numpy as np
import pytest

from stages.core.pair_splits import split


def test_split__the_published_sizes():
    drawn = split(0, 20, 4199, 0.25)
    assert drawn.shape == (20, 4199) and (drawn.sum(1) == 1049).all()


def test_split__is_determined_by_seed_and_run_alone():
    drawn = split(3, 5, 40, 0.25)
    assert np.array_equal(drawn, split(3, 5, 40, 0.25))
    assert np.array_equal(drawn[:2], split(3, 2, 40, 0.25))
    assert len({run.tobytes() for run in drawn}) == 5
    assert not np.array_equal(drawn, split(4, 5, 40, 0.25))


def test_split__every_pair_is_tested_about_as_often():
    shares = split(0, 400, 20, 0.25).mean(0)
    assert shares.min() > 0.15 and shares.max() < 0.35


@pytest.mark.parametrize(("pairs", "share", "least"), [(7, 0.25, 8), (5, 0.2, 10), (3, 0.5, 4), (8, 0.9, 11)])
def test_split__raise_on_too_few_pairs(pairs, share, least):
    with pytest.raises(ValueError, match=rf"{pairs} pairs with test_share {share} .* give at least {least} pairs"):
        split(0, 2, pairs, share)
    split(0, 2, least, share)
