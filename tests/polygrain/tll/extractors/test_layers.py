from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.functional import normalize

from polygrain.encoder.model import load as load_encoder
from polygrain.tll.extractors import layers
from polygrain.tll.extractors.config import Extractor
from polygrain.tll.extractors.layers import Layers
from tests.helpers.settings import CONVOLUTIONS, ENCODER
from tests.helpers.small import SIZE, write_encoder
from tests.polygrain.encoder.test_installed import LITE, package, published, renamed  # noqa: F401


def pictures(count: int = 3, size: int = 32) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (count, 3, size, size), dtype=np.uint8))


def test_layers__equal_the_network_read_step_by_step():
    torch.manual_seed(0)
    made = Layers(Extractor(**CONVOLUTIONS))
    network, x = made.network, (pictures().float() / 255 - 0.5) / 0.25
    x = network.layer1(network.maxpool(network.act1(network.bn1(network.conv1(x)))))
    first = normalize(x.mean((2, 3)), dim=1)
    third = normalize(network.layer3(network.layer2(x)).mean((2, 3)), dim=1)
    torch.testing.assert_close(made(pictures()), torch.cat([first, third], 1))
    torch.testing.assert_close(made(pictures().float() / 255), made(pictures()))


def test_layers__of_an_encoder_are_means_over_patch_tokens(tmp_path):
    encoder = load_encoder(write_encoder(tmp_path / "encoder"))
    made = layers.load(Extractor(**ENCODER, layers=["blocks.1"]), tmp_path / "encoder")
    assert made.size == SIZE
    x = (pictures(size=SIZE).float() / 255 - encoder.mean) / encoder.std
    tokens = encoder.backbone.forward_intermediates(x, indices=[1], output_fmt="NLC", intermediates_only=True)[0]
    torch.testing.assert_close(made(pictures(size=SIZE)), normalize(tokens.mean(1), dim=1))


def test_pool__maps_tokens_and_vectors():
    network = nn.Module()
    image = torch.arange(24.0).view(1, 2, 3, 4)
    torch.testing.assert_close(layers.pool(image, network, "x"), image.mean((2, 3)))
    tokens = torch.arange(12.0).view(1, 4, 3)
    torch.testing.assert_close(layers.pool(tokens, network, "x"), tokens.mean(1))
    network.num_prefix_tokens, network.output_fmt = 1, "NHWC"
    torch.testing.assert_close(layers.pool(tokens, network, "x"), tokens[:, 1:].mean(1))
    torch.testing.assert_close(layers.pool(image, network, "x"), image.mean((1, 2)))
    assert layers.pool(image[0, 0], network, "x") is not None
    for wrong in (torch.zeros(3), (image, image)):
        with pytest.raises(ValueError, match=r"layer 'x' puts out .*; choose one that puts out a map"):
            layers.pool(wrong, network, "x")


def test_layers__a_layer_that_does_not_exist_is_answered_with_those_that_do():
    with pytest.raises(ValueError, match=r"no layer 'layer9'.*layer1"):
        Layers(Extractor(**CONVOLUTIONS | {"layers": ["layer1", "layer9"]}))


def test_load__a_file_with_a_classifier(tmp_path):
    torch.manual_seed(1)
    whole = timm.create_model("resnet10t", num_classes=7)
    save_file(whole.state_dict(), tmp_path / "weights.safetensors")
    made = layers.load(Extractor(**CONVOLUTIONS), tmp_path / "weights.safetensors")
    assert torch.equal(made.network.layer1[0].conv1.weight, whole.layer1[0].conv1.weight)
    save_file({"layer1.odd": torch.zeros(1)}, tmp_path / "odd.safetensors")
    for name in ("odd", "gone"):
        with pytest.raises(ValueError, match=f"{name}.safetensors"):
            layers.load(Extractor(**CONVOLUTIONS), tmp_path / f"{name}.safetensors")


def test_load__published_weights_of_an_installed_package(package):  # noqa: F811
    tensors = published()
    torch.save(renamed(tensors), package)
    made = layers.load(Extractor(**CONVOLUTIONS | {"network": LITE, "layers": ["global_pool"]}), Path("versions.yaml"))
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in made.network.state_dict().items())


def test_save__restores_the_same_numbers(tmp_path):
    torch.manual_seed(3)
    made = Layers(Extractor(**CONVOLUTIONS))
    layers.save(made, tmp_path)
    torch.testing.assert_close(layers.restore(tmp_path)(pictures()), made(pictures()), rtol=0, atol=0)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"config\.json"):
        layers.restore(tmp_path)
