from pathlib import Path

import torch

from polygrain.gsp.folds.resnet20 import ResNet20
from polygrain.gsp.folds.trunk import Backbone, load

VALUES = {"path": "x", "architecture": "resnet20", "mean": [0.5] * 3, "std": [1.0] * 3, "depth": None}
VALUES |= {"freezes_norm": True}


def test_resnet20__has_the_published_number_of_parameters():
    """269,722 (the paper's 0.27 million) for ten classes, 650 of them to classify; shortcuts without parameters."""
    network = ResNet20()
    shortcuts = [layer[0].downsample for layer in (network.layer2, network.layer3)]
    counts = [sum(p.numel() for part in parts for p in part.parameters()) for parts in ([network], shortcuts)]
    assert counts[0] - counts[1] == 269_722 - 650
    names = set(network.state_dict())
    assert {"conv1.weight", "layer1.0.conv1.weight", "layer2.0.downsample.0.weight", "layer3.2.bn2.bias"} <= names


def test_load__every_layer_of_a_random_resnet20_learns():
    values = VALUES | {"weights": "random", "is_trained": True, "mean": None, "std": None}
    trunk = load(Backbone(**values), Path(), 0)
    assert trunk.mean.flatten().tolist() == [0.5] * 3
    trunk(torch.rand(2, 3, 32, 32)).square().mean().backward()
    trained = {name: p.grad for name, p in trunk.network.named_parameters() if p.requires_grad}
    assert len(trained) == 21 and all(gradient.abs().max() > 0 for gradient in trained.values())
