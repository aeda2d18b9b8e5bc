import numpy as np
import pytest
from PIL import Image, ImageFont
from sklearn.datasets import load_digits, load_sample_images

from polygrain.sources import installed

SIZE = 32


@pytest.mark.parametrize(
    ("draw", "more", "fewer"),
    [(installed.digits, (5,), (2,)), (installed.glyphs, (3,), (2,)), (installed.patches, (4, 6), (2, 6))],
)
def test_sources__distinct_images_that_do_not_depend_on_the_others(draw, more, fewer) -> None:
    pictures, some = draw(SIZE, *more), draw(SIZE, *fewer)
    assert (
        len({picture.sha256 for picture in pictures.values()}) == len({path for _, path in pictures}) == len(pictures)
    )
    for picture in pictures.values():
        assert picture.pixels.shape == (SIZE, SIZE, 3) and picture.pixels.std() > 4
    assert len(some) < len(pictures)
    assert all(picture.sha256 == pictures[key].sha256 for key, picture in some.items())


def test_digits__are_scikit_learns() -> None:
    bunch, drawn = load_digits(), installed.digits(96, 5)
    correlations = []
    for (label, path), picture in drawn.items():
        row = int(path.split("/")[1])
        assert str(bunch.target[row]) == label
        inner = Image.fromarray(picture.pixels[12:-12, 12:-12, 0]).resize((8, 8), Image.Resampling.BOX)
        correlations.append(np.corrcoef(np.asarray(inner).ravel(), bunch.images[row].ravel())[0, 1])
    # Dark ink on light paper, moved a little: strongly negative, but not exactly -1.
    assert len(correlations) == 50 and np.median(correlations) < -0.65 and max(correlations) < 0


def test_text_fonts__have_every_character() -> None:
    fonts = installed.text_fonts(48)
    assert {"DejaVuSans", "STIXGeneral", "cmr10"} <= set(fonts)
    assert not {"STIXSizOneSymReg", "LastResortHE-Regular", "cmsy10", "DejaVuSansDisplay"} & set(fonts)
    for font in fonts.values():
        assert isinstance(font, ImageFont.FreeTypeFont)
        # The letters of any text font: m is wider than i, or of one width in typewriter type, and h stands above x.
        assert font.getlength("m") >= font.getlength("i")
        assert font.getbbox("h", anchor="ls")[1] < font.getbbox("x", anchor="ls")[1] < 0


def test_patches__show_their_place() -> None:
    photo = Image.fromarray(load_sample_images().images[0])
    still = np.random.default_rng(0)
    where = np.array([200.0, 150.0])
    plain = np.asarray(installed.around(photo, where, 40.0, 40, still, 0), int)
    np.testing.assert_allclose(plain, np.asarray(photo.crop((180, 130, 220, 170)), int), atol=2)
