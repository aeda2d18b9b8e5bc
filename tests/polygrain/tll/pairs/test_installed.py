import numpy as np
import pytest

from polygrain.tll.pairs import installed


@pytest.fixture(scope="module")
def pairs() -> dict[str, installed.PicturePair]:
    return installed.draw(32, 2, 3)


def test_draw__kinds_and_counts(pairs):
    kinds = [name.rpartition("-")[2] for name in pairs]
    assert {kind: kinds.count(kind) for kind in installed.RENDITIONS} == {"edges": 6, "poster": 6, "recoloured": 6}
    assert len(pairs) == 18 + 2 * len(installed.CHARACTERS)


def test_draw__pixels_are_distinct_and_do_not_depend_on_other_pairs(pairs):
    sides = [side for pair in pairs.values() for side in (pair.left, pair.right)]
    assert len({side.tobytes() for side in sides}) == len(sides)
    assert all(side.shape == (32, 32, 3) and side.dtype == np.uint8 and side.std() > 1 for side in sides)
    fewer = installed.draw(32, 1, 3)
    assert set(fewer) < set(pairs)
    for name, pair in fewer.items():
        assert np.array_equal(pair.left, pairs[name].left) and np.array_equal(pair.right, pairs[name].right)


def test_renditions__by_hand():
    step = np.zeros((8, 8, 3), np.uint8)
    step[:, 4:] = [200, 100, 0]
    drawing = installed.edges(step)
    assert (drawing[:, 3:5] < 10).all() and (drawing[:, [0, 1, 6, 7]] == 255).all()
    assert (installed.edges(np.full((8, 8, 3), 90, np.uint8)) == 255).all()
    assert installed.recoloured(step)[0, 7].tolist() == [155, 255, 55]
    ramp = np.arange(81, dtype=np.uint8).reshape(9, 9)[..., None].repeat(3, 2)
    assert len(np.unique(installed.poster(ramp).reshape(-1, 3), axis=0)) == 3
