import sys
from types import SimpleNamespace

import numpy as np
import pytest

from polygrain.tll.pairs import faces


@pytest.mark.parametrize("module", [None, SimpleNamespace(__version__="5.0.0")], ids=["none", "opencv 5"])
def test_detector__says_what_to_install(monkeypatch, module):
    monkeypatch.setitem(sys.modules, "cv2", module)
    with pytest.raises(ValueError, match="pip install 'opencv-python-headless<5'"):
        faces.detector()


def test_detector__asks_the_cascade_about_a_grey_picture(monkeypatch):
    """OpenCV is optional, so a stand-in with its interface; `found` is what its cascade would say."""
    asked = []

    class Cascade:
        def __init__(self, file: str) -> None:
            assert file == "/cascades/haarcascade_frontalface_default.xml"

        def detectMultiScale(self, grey: np.ndarray, **_: object) -> list | tuple:
            asked.append(grey.shape)
            return [(0, 0, 5, 5)] if grey.mean() > 100 else ()

    stand_in = SimpleNamespace(
        CascadeClassifier=Cascade,
        data=SimpleNamespace(haarcascades="/cascades/"),
        cvtColor=lambda pixels, code: pixels.mean(2),
        COLOR_RGB2GRAY=7,
    )
    monkeypatch.setitem(sys.modules, "cv2", stand_in)
    has_face = faces.detector()
    assert has_face(np.full((8, 8, 3), 200, np.uint8)) is True
    assert has_face(np.zeros((8, 8, 3), np.uint8)) is False
    assert asked == [(8, 8), (8, 8)]
