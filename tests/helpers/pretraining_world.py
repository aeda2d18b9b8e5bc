"""What the tests of the frameworks share: a small network of each kind, small projectors, two views."""

import torch
from torch import nn

from polygrain.encoder.config import Config
from polygrain.encoder.views import Augmentation
from polygrain.mpcl.pretraining.barlow_twins import BarlowTwinsParams
from polygrain.mpcl.pretraining.heads import ProjectorParams
from polygrain.mpcl.pretraining.moco_v2 import MocoV2Params
from polygrain.mpcl.pretraining.moco_v3 import MocoV3Params
from polygrain.mpcl.pretraining.optimizer import OptimizerParams
from polygrain.mpcl.trainable import TrainableEncoder
from tests.helpers.small import CONFIG
from tests.test_profiles import composed

RESNET = Config(architecture="resnet10t", size=32, resize=32, mean=(0.5,) * 3, std=(0.5,) * 3)
SGD = OptimizerParams(name="sgd", learning_rate=0.1, weight_decay=0.0001)
VIEW = Augmentation(smallest_crop=0.5, turn=0, flip=0.5, stroke=0, jitter=0.2, tint=0, grey=0, blur=0)


class Standin(TrainableEncoder):
    """A linear layer and a tanh where the reference has its encoder."""

    WIDTH = 12

    def __init__(self):
        nn.Module.__init__(self)
        self.body = nn.Linear(self.WIDTH, self.WIDTH, bias=False)

    @property
    def dim(self):
        return self.WIDTH

    def forward(self, images):
        return self.body(images.flatten(1)).tanh()


def projector(norm):
    return ProjectorParams(hidden=12, different=[6, 8, 10], out=8, layers=2, norm=norm)


def moco_v2(**changes):
    values = {"queue": 16, "temperature": 0.2, "momentum": 0.9, "norm_splits": 1}
    return MocoV2Params(**({"projector": projector("none"), "optimizer": SGD} | values | changes))


def moco_v3(**changes):
    values = {"predictor": 12, "temperature": 0.2, "momentum": 0.9, "fixed_patches": True}
    return MocoV3Params(**({"projector": projector("all"), "optimizer": SGD} | values | changes))


def barlow(**changes):
    return BarlowTwinsParams(projector=projector("inner"), optimizer=SGD, **({"beta": 0.005, "scale": 0.1} | changes))


def network(config=CONFIG, seed=0):
    torch.manual_seed(seed)
    return TrainableEncoder(config)


def views(batch=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(batch, 3, 32, 32, generator=generator), torch.rand(batch, 3, 32, 32, generator=generator)


def started(profile, seed=0):
    """The encoder of a profile's runs as it starts."""
    params = composed(profile)["mpcl_encoder"]["network"]
    torch.manual_seed(seed)
    named = {"architecture": params["architecture"], "kwargs": params["kwargs"]}
    return TrainableEncoder(Config(**named, size=params["side"], resize=256, mean=(0.5,) * 3, std=(0.5,) * 3))
