"""Faster R-CNN over a ResNet: its map, its head, its losses."""

import pytest
import torch
from torch import nn

from polygrain.encoder.model import save
from polygrain.mpcl.detection.network import build
from tests.helpers.pretraining_world import RESNET, network
from tests.helpers.small import CONFIG

SIZES = {"min_size": (64,), "max_size": 96, "box_batch_size_per_image": 16}


@pytest.fixture
def encoder(tmp_path):
    (tmp_path / "encoder").mkdir()
    save(network(RESNET), tmp_path / "encoder")
    return tmp_path / "encoder"


def test_build__three_groups_make_the_map_and_the_fourth_the_head(encoder):
    resnet = network(RESNET).backbone.eval()
    model = build(encoder, 3, 40, **SIZES).eval()
    images = torch.rand(2, 3, 64, 64)
    map_ = model.backbone(images)
    assert map_.shape == (2, model.backbone.out_channels, 4, 4)
    given = resnet.maxpool(resnet.act1(resnet.bn1(resnet.conv1(images))))
    for group in (resnet.layer1, resnet.layer2, resnet.layer3):
        given = group(given)
    assert torch.allclose(map_, given, atol=1e-6)
    boxes, head = torch.rand(5, model.backbone.out_channels, 14, 14), model.roi_heads.box_head
    norm = [module for module in head if isinstance(module, nn.BatchNorm2d)][-1]
    assert torch.allclose(head(boxes), norm(resnet.layer4(boxes)).mean((2, 3)), atol=1e-5)


def test_build__all_of_it_learns_and_half_as_many_proposals_are_tested(encoder):
    model = build(encoder, 3, 40, **SIZES).train()
    assert model.rpn.post_nms_top_n() == 40 and model.eval().rpn.post_nms_top_n() == 20
    target = {"boxes": torch.tensor([[8.0, 8, 40, 40]]), "labels": torch.tensor([2])}
    losses = model.train()([torch.rand(3, 64, 64)] * 2, [target, target])
    sum(losses.values()).backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


def test_build__another_network_is_refused(tmp_path):
    (tmp_path / "vit").mkdir()
    save(network(CONFIG), tmp_path / "vit")
    with pytest.raises(ValueError, match="'vit_tiny_patch16_224' is no ResNet"):
        build(tmp_path / "vit", 3, 40, **SIZES)
