"""Whether a picture shows a face, by OpenCV's Haar cascade; OpenCV is optional (`pip install '.[faces]'`)."""

from collections.abc import Callable

import numpy as np
from jaxtyping import UInt8


def detector() -> Callable[[UInt8[np.ndarray, "y x 3"]], bool]:
    """A function that says whether an RGB picture shows a frontal face; ValueError where OpenCV 4 is not installed."""
    try:
        import cv2
    except ImportError:
        cv2 = None
    # OpenCV 5 no longer has the cascades.
    if not hasattr(cv2, "CascadeClassifier"):
        raise ValueError("to split off faces OpenCV 4 is needed: pip install 'opencv-python-headless<5'")
    cascade = cv2.CascadeClassifier(cv2.data.haarcascades + "haarcascade_frontalface_default.xml")

    def has_face(pixels: UInt8[np.ndarray, "y x 3"]) -> bool:
        grey = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
        return len(cascade.detectMultiScale(grey, scaleFactor=1.1, minNeighbors=5)) > 0

    return has_face
