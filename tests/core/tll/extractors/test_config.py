import pytest

from stages.core.tll.extractors.config import Extractor

CONVOLUTIONS = {
    "library": "timm",
    "network": "resnet18",
    "kwargs": {},
    "side": 32,
    "mean": (0.5, 0.5, 0.5),
    "std": (0.2, 0.2, 0.2),
    "layers": ["layer1"],
}
ENCODER = {"library": "encoder", "network": None, "kwargs": {}, "side": None, "mean": None, "std": None}


def test_extractor__says_what_each_library_needs():
    with pytest.raises(ValueError, match="takes network, side, mean and std from the model folder: give null"):
        Extractor(**ENCODER | {"side": 32}, layers=["blocks.0"])
    with pytest.raises(ValueError, match="library: timm needs network, side, mean and std"):
        Extractor(**CONVOLUTIONS | {"side": None})
