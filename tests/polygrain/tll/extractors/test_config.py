import pytest

from polygrain.tll.extractors.config import Extractor
from tests.helpers.settings import CONVOLUTIONS, ENCODER


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (ENCODER | {"side": 32, "layers": ["blocks.0"]}, "from the model folder"),
        (CONVOLUTIONS | {"side": None}, "timm needs"),
        (CONVOLUTIONS | {"network": "resnet10x"}, "resnet10t"),
        (CONVOLUTIONS | {"library": "torchvision", "network": "resnet19"}, "resnet1"),
    ],
)
def test_extractor__says_what_each_library_needs(values, message):
    with pytest.raises(ValueError, match=message):
        Extractor(**values)
