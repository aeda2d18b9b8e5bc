import pytest
import torch
from torch.nn import functional

from polygrain.encoder.networks import build_network
from polygrain.gsp.classifier import PooledClassifier
from polygrain.losses.zero_shot import zero_shot_loss

GSP = {"prototypes": 4, "mu": 0.5, "epsilon": 5.0}
IMAGES = torch.rand(6, 3, 32, 32, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 0, 1, 2])


def make(pooling="gsp", values=GSP, zero_shot=0.0, architecture="test_resnet"):
    torch.manual_seed(0)
    return PooledClassifier(build_network(architecture, {}), pooling, values, 3, zero_shot, 5, "float32")


def test_forward__average_pooling_is_the_networks_own():
    model = make("gap", {}).eval()
    expected = model.network.forward_head(model.network.forward_features((IMAGES - 0.5) / 0.5), pre_logits=True)
    assert torch.allclose(model(IMAGES).vector, expected, atol=1e-5)


def test_loss_of__cross_entropy_with_its_share_of_the_zero_shot_loss():
    model = make(zero_shot=0.1).eval()
    loss, accuracy = model.loss_of(IMAGES, LABELS, 0.1, 0.05, 9.5)
    pooled = model(IMAGES)
    logits = model.last(pooled.vector)
    first = functional.cross_entropy(logits, LABELS, label_smoothing=0.1)
    second = zero_shot_loss(pooled.attributes, LABELS, model.class_embeddings, 0.05, 9.5)
    assert loss.item() == pytest.approx((0.9 * first + 0.1 * second).item(), rel=1e-5)
    assert accuracy.item() == pytest.approx((logits.argmax(1) == LABELS).double().mean().item())
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_pooled_classifier__wants_a_map_and_attributes():
    with pytest.raises(ValueError, match="attributes"):
        make("gap", {}, 0.1)
    with pytest.raises(ValueError, match="transformer"):
        make(architecture="test_vit")
