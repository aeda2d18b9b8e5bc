import base64
import io

import numpy as np
from PIL import Image

from polygrain.report import pictures


def test_pictured__shrinks_and_keeps_the_shape():
    address = pictures.pictured(np.full((40, 80, 3), 128, np.uint8), 20)
    kind, _, content = address.partition(",")
    image = Image.open(io.BytesIO(base64.b64decode(content)))
    assert kind == "data:image/jpeg;base64" and image.size == (20, 10)
