import sys
from types import SimpleNamespace

import numpy as np
import pytest

from polygrain.tll.pairs import faces


@pytest.mark.parametrize("module", [None, SimpleNamespace(__version__="5.0.0")], ids=["none", "opencv 5"])
def test_detector__says_what_to_install(monkeypatch, module):
    monkeypatch.setitem(sys.modules, "cv2", module)
    with pytest.raises(ValueError, match="opencv-python-headless<5"):
        faces.detector()


def test_detector__asks_the_cascade_about_a_grey_picture(monkeypatch):
    """OpenCV is optional, so a stand-in with its interface: bright pictures have a face."""
    cascade = SimpleNamespace(detectMultiScale=lambda grey, **_: [(0, 0, 5, 5)] if grey.mean() > 100 else ())
    stand_in = SimpleNamespace(
        CascadeClassifier={"/cascades/haarcascade_frontalface_default.xml": cascade}.__getitem__,
        data=SimpleNamespace(haarcascades="/cascades/"),
        cvtColor=lambda pixels, code: pixels.mean(2),
        COLOR_RGB2GRAY=7,
    )
    monkeypatch.setitem(sys.modules, "cv2", stand_in)
    assert [faces.detector()(np.full((8, 8, 3), value, np.uint8)) for value in (200, 0)] == [True, False]
