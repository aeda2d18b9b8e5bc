from polygrain.gsp.folds.resnet20 import ResNet20

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
