import numpy as np
import pytest

from polygrain.gsp.collage import resize, stitch


def test_stitch__puts_the_target_where_it_says_and_other_backgrounds_around_it():
    targets = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3) + 100
    backgrounds = np.ones((8, 4, 4, 3), np.uint8) * np.arange(1, 9, dtype=np.uint8)[:, None, None, None]
    pixels, places = stitch(targets, backgrounds, 3, np.random.default_rng(0))
    with pytest.raises(ValueError, match="three"):
        stitch(targets, backgrounds[:2], 3, np.random.default_rng(0))
    assert pixels.shape == (6, 8, 8, 3) and len(set(places)) > 1
    for i, (image, place) in enumerate(zip(pixels, places, strict=True)):
        cells = [image[y : y + 4, x : x + 4] for y in (0, 4) for x in (0, 4)]
        assert (cells.pop(place) == targets[i // 3]).all()
        grounds = [int(cell[0, 0, 0]) for cell in cells]
        assert len(set(grounds)) == 3 and set(grounds) <= set(range(1, 9))
        assert all((cell == ground).all() for cell, ground in zip(cells, grounds, strict=True))


def test_resize__averages_areas_and_leaves_the_right_size_alone():
    image = np.zeros((1, 4, 4, 3), np.uint8)
    image[:, :, 2:] = 200
    small = resize(image, 2)
    assert small.shape == (1, 2, 2, 3) and small[0, 0, 0, 0] < 60 and small[0, 0, 1, 0] > 140
    assert resize(image, 4) is image
