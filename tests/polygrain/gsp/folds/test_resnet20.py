from pathlib import Path

import pytest
import torch

from polygrain.gsp.folds.resnet20 import ResNet20
from polygrain.gsp.folds.trunk import Backbone, load
from polygrain.store.tensors import write_weights

VALUES = {"path": "x", "architecture": "resnet20", "arguments": {}, "mean": [0.5] * 3, "std": [1.0] * 3, "depth": None}


def test_resnet20__has_the_published_number_of_parameters():
    """269,722 (the paper's 0.27 million) for ten classes, 650 of them to classify; shortcuts without parameters."""
    network = ResNet20()
    shortcuts = [layer[0].downsample for layer in (network.layer2, network.layer3)]
    counts = [sum(p.numel() for part in parts for p in part.parameters()) for parts in ([network], shortcuts)]
    assert counts[0] - counts[1] == 269_722 - 650
    names = set(network.state_dict())
    assert {"conv1.weight", "layer1.0.conv1.weight", "layer2.0.downsample.0.weight", "layer3.2.bn2.bias"} <= names


def test_load__resnet20_from_a_file_and_at_a_depth(tmp_path):
    torch.manual_seed(1)
    network = ResNet20()
    write_weights(network, tmp_path / "weights.safetensors")
    given = {"weights": "file", "path": str(tmp_path / "weights.safetensors"), "is_trained": False}
    images = torch.rand(2, 3, 32, 32)
    result = load(Backbone(**(VALUES | given)), Path(), 0)(images)
    assert result.shape == (2, 64, 8, 8)
    assert torch.allclose(result, network.eval().forward_features(images - 0.5), atol=1e-5)
    middle = load(Backbone(**(VALUES | given | {"depth": 2})), Path(), 0)(images)
    assert middle.shape == (2, 32, 16, 16)


def test_load__every_layer_of_a_random_resnet20_learns():
    values = VALUES | {"weights": "random", "is_trained": True, "mean": None, "std": None}
    trunk = load(Backbone(**values), Path(), 0)
    assert trunk.mean.flatten().tolist() == [0.5] * 3
    trunk(torch.rand(2, 3, 32, 32)).square().mean().backward()
    trained = {name: p.grad for name, p in trunk.network.named_parameters() if p.requires_grad}
    assert len(trained) == 21 and all(gradient.abs().max() > 0 for gradient in trained.values())


def test_resnet20__refuses_what_it_does_not_have():
    with pytest.raises(ValueError, match="weights"):
        load(Backbone(**VALUES | {"weights": "pretrained", "is_trained": False}), Path(), 0)
