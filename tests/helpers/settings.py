"""Settings of training and of networks that several tests start from."""

from polygrain.encoder.views import Augmentation
from polygrain.selection.criterion import CriterionSettings, Reference
from polygrain.selection.watch import WatchSettings

NO_VIEWS = Augmentation(smallest_crop=1.0, turn=0.0, flip=0.0, stroke=0.0, jitter=0.0, tint=0.0, grey=0.0, blur=0.0)
VIEWS = Augmentation(smallest_crop=0.5, turn=20.0, flip=0.5, stroke=1.0, jitter=0.3, tint=0.2, grey=0.1, blur=0.3)
CONVOLUTIONS = {
    "library": "timm",
    "network": "resnet10t",
    "kwargs": {},
    "side": 32,
    "mean": (0.5, 0.5, 0.5),
    "std": (0.25, 0.25, 0.25),
    "layers": ["layer1", "layer3"],
}
ENCODER = {"library": "encoder", "network": None, "kwargs": {}, "side": None, "mean": None, "std": None}


def classifier(**changes: object) -> dict:
    """Of `classification.ClassifierSettings`."""
    values = {"gamma": 23.0, "epochs": 3, "batch": 16, "learning_rate": 0.01, "weight_decay": 0.0, "warmup": 0.0}
    return values | {"precision": "float32", "augmentation": NO_VIEWS} | changes


def pairs(**changes: object) -> dict:
    """Of `barlow_twins.Pairs`."""
    values = {"epochs": 2, "batch": 16, "learning_rate": 4.0, "weight_decay": 0.001, "warmup": 0.0, "beta": 0.005}
    values |= {"scale": 0.1, "start_std": 0.02, "projector": [32, 16]}
    return values | {"precision": "float32", "augmentation": NO_VIEWS} | changes


def criterion(**changes: object) -> CriterionSettings:
    """Views that differ by their crop and light, their colours and their sharpness, on all training images."""
    values = {
        "images": 24,
        "fewest": 4,
        "trained": NO_VIEWS.model_copy(update={"smallest_crop": 0.95, "jitter": 0.1}),
        "recoloured": NO_VIEWS.model_copy(update={"jitter": 0.2, "tint": 0.1}),
        "coarse": 0.5,
        "neighbours": 3,
    }
    return CriterionSettings(**(values | changes))


def watching(watch: str = "criterion") -> WatchSettings:
    return WatchSettings(watch=watch, watched=12)


def reference(**changes: object) -> Reference:
    return Reference(**({"scales": [1, 1.5], "mirrored": True, "blocks": 1, "dim": 8} | changes))


def comparing(**changes: object) -> dict:
    """Of `search.Settings`."""
    values = {
        "criterion": criterion(images=12),
        "reference": reference(),
        "layer": "clusters",
        "blocks": 2,
        "dim": None,
        "errors": 1.0,
        "guard": 1.0,
        "alike": {},
    }
    return values | changes
