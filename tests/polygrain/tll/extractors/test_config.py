import pytest

from polygrain.tll.extractors.config import Extractor
from tests.helpers.settings import CONVOLUTIONS, ENCODER


def test_extractor__says_what_each_library_needs():
    with pytest.raises(ValueError, match="takes network, side, mean and std from the model folder: give null"):
        Extractor(**ENCODER | {"side": 32}, layers=["blocks.0"])
    with pytest.raises(ValueError, match="library: timm needs network, side, mean and std"):
        Extractor(**CONVOLUTIONS | {"side": None})
