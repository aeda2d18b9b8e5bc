import pytest
import torch
from torch import nn
from torch.nn.functional import batch_norm, conv2d, max_pool2d, relu

from polygrain.tll.extractors import layers
from polygrain.tll.extractors.config import Extractor
from polygrain.tll.extractors.facenet import InceptionResNet, Reduction, Residual
from polygrain.tll.extractors.published import published

EMBEDDING, CLASSES = 512, 8631  # of VGGFace2


def test_network__has_the_published_parameters_names_and_map():
    with torch.device("meta"):
        network = InceptionResNet().eval()
        assert network(torch.zeros(1, 3, 160, 160)).shape == (1, 1792, 3, 3)
    count = sum(parameter.numel() for parameter in network.parameters())
    count += 1792 * EMBEDDING + 2 * EMBEDDING + (EMBEDDING + 1) * CLASSES
    assert round(count / 1e6, 1) == 27.9
    shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    assert shapes["repeat_1.4.branch2.2.conv.weight"] == (32, 32, 3, 3)
    assert shapes["repeat_2.9.branch1.1.conv.weight"] == (128, 128, 1, 7)
    assert shapes["mixed_6a.branch0.conv.weight"] == (384, 256, 3, 3)
    assert shapes["mixed_7a.branch2.2.bn.running_var"] == (256,)
    assert shapes["block8.conv2d.weight"] == (1792, 384, 1, 1) and "block8.conv2d.bias" in shapes


def step(tensors: dict, name: str, x: torch.Tensor, stride: int = 1, padding: str = "same") -> torch.Tensor:
    x = conv2d(x, tensors[f"{name}.conv.weight"], None, stride, padding)
    norm = (tensors[f"{name}.bn.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
    return relu(batch_norm(x, *norm, eps=0.001))


@pytest.mark.parametrize("has_relu", [True, False])
def test_blocks__equal_their_branches_step_by_step(has_relu):
    torch.manual_seed(0)
    x = torch.randn(2, 6, 7, 7)
    block = Residual(6, [[(3, 1)], [(4, 1), (5, (1, 7)), (5, (7, 1))]], 0.17, has_relu).eval()
    own = block.state_dict()
    both = torch.cat(
        [step(own, "branch0", x), step(own, "branch1.2", step(own, "branch1.1", step(own, "branch1.0", x)))], 1
    )
    summed = x + 0.17 * conv2d(both, own["conv2d.weight"], own["conv2d.bias"])
    torch.testing.assert_close(block(x), relu(summed) if has_relu else summed)
    reduction = Reduction(6, [[(4, 1), (5, 3, 2, False)]]).eval()
    own = reduction.state_dict()
    shrunk = step(own, "branch0.1", step(own, "branch0.0", x), 2, "valid")
    torch.testing.assert_close(reduction(x), torch.cat([shrunk, max_pool2d(x, 3, 2)], 1))


def test_load__takes_a_file_with_embedding_and_classifier(tmp_path):
    torch.manual_seed(1)
    tensors = InceptionResNet().state_dict()
    ends = {"last_linear": nn.Linear(1792, 2, bias=False), "last_bn": nn.BatchNorm1d(2), "logits": nn.Linear(2, 3)}
    more = {f"{name}.{key}": tensor for name, end in ends.items() for key, tensor in end.state_dict().items()}
    torch.save(tensors | more, tmp_path / "facenet.pt")
    made = layers.load(published()["facenet"], tmp_path / "facenet.pt")
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in made.network.state_dict().items())
    with pytest.raises(ValueError, match="name a file"):
        layers.load(published()["facenet"], tmp_path / "versions.yaml")


def test_extractor__of_our_own_is_facenet_alone():
    with pytest.raises(ValueError, match="inception_resnet_v1 alone"):
        Extractor(**published()["facenet"].model_dump() | {"network": "inception_resnet_v2"})
