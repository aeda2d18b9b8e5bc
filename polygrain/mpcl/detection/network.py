"""Faster R-CNN over a ResNet, C4: three groups give the map, the fourth and one more batch norm are the head."""

from pathlib import Path
from typing import Any

from timm.models import ResNet
from torch import nn
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor
from torchvision.ops import MultiScaleRoIAlign

from polygrain.mpcl import trainable


def build(folder: Path, classes: int, proposals: int, **sizes: Any) -> FasterRCNN:
    """The detector over the encoder in a folder, which takes images in 0..1; `classes` counts the background.

    An evaluation has half as many `proposals` as a training. ValueError for an encoder that is no ResNet.
    """
    encoder = trainable.load(folder)
    resnet, config = encoder.backbone, encoder.config
    if not isinstance(encoder.backbone, ResNet):
        raise ValueError(f"{config.architecture!r} is no ResNet: a C4 detector needs its four groups")
    trunk = nn.Sequential(*list(resnet.children())[:7])  # its stem of four, layer1, layer2, layer3
    trunk.out_channels, wide = resnet.feature_info[3]["num_chs"], resnet.num_features
    return FasterRCNN(
        trunk,
        image_mean=list(config.mean),
        image_std=list(config.std),
        rpn_anchor_generator=AnchorGenerator(((32, 64, 128, 256, 512),), ((0.5, 1.0, 2.0),)),
        # The number of the base code's C4.
        rpn_pre_nms_top_n_train=6 * proposals,
        rpn_pre_nms_top_n_test=3 * proposals,
        rpn_post_nms_top_n_train=proposals,
        rpn_post_nms_top_n_test=proposals // 2,
        box_roi_pool=MultiScaleRoIAlign(["0"], 14, 0),
        box_head=nn.Sequential(*resnet.layer4, nn.BatchNorm2d(wide), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        box_predictor=FastRCNNPredictor(wide, classes),
        **sizes,
    )
