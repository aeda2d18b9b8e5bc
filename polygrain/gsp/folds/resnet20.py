"""ResNet-20 for images of 32 px (He et al., 2016, 4.2), which timm does not have; known to it from the import on.

A layer of 16 channels, then three stages of three blocks of 16, 32 and 64 channels. Its tensors are named as in
torchvision's ResNets, as published weights for CIFAR are, so that `weights: file` takes those.
"""

import torch
from jaxtyping import Float
from timm.models import register_model
from timm.models.resnet import BasicBlock, downsample_conv
from torch import Tensor, nn

WIDTHS = (16, 32, 64)
BLOCKS = 3


class ResNet20(nn.Module):
    """Images to maps of a quarter of their side and 64 channels. No residual branch starts at 0: with its batch norm
    frozen, it would stay there."""

    def __init__(self) -> None:
        super().__init__()
        self.pretrained_cfg = {"mean": (0.5, 0.5, 0.5), "std": (1.0, 1.0, 1.0)}  # what GSP's code gives it
        self.conv1 = nn.Conv2d(3, WIDTHS[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        self.layer1 = stage(WIDTHS[0], WIDTHS[0], 1)
        self.layer2 = stage(WIDTHS[0], WIDTHS[1], 2)
        self.layer3 = stage(WIDTHS[1], WIDTHS[2], 2)
        self.feature_info = [{"num_chs": width, "module": f"layer{i}"} for i, width in enumerate(WIDTHS, 1)]
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward_intermediates(
        self, x: Float[Tensor, "batch 3 y x"], indices: list[int], **_: bool
    ) -> list[Float[Tensor, "batch channel row column"]]:
        """The maps behind the stages of these numbers, counted from 0, as timm's networks give them."""
        x, found = torch.relu(self.bn1(self.conv1(x))), []
        for layer in (self.layer1, self.layer2, self.layer3)[: max(indices) + 1]:
            x = layer(x)
            found.append(x)
        return [found[i] for i in indices]

    def forward_features(self, x: Float[Tensor, "batch 3 y x"]) -> Float[Tensor, "batch 64 row column"]:
        """The map behind the last stage."""
        return self.forward_intermediates(x, [len(WIDTHS) - 1])[0]

    def reset_classifier(self, num_classes: int) -> None:
        """There is none."""


def stage(before: int, width: int, stride: int) -> nn.Sequential:
    shortcut = downsample_conv(before, width, 1, stride=stride) if stride > 1 else None
    rest = [BasicBlock(width, width) for _ in range(BLOCKS - 1)]
    return nn.Sequential(BasicBlock(before, width, stride, shortcut), *rest)


@register_model
def resnet20(pretrained: bool = False, **arguments: object) -> ResNet20:
    """timm's way to it; there are no weights to download, and nothing to set but that it has no classifier."""
    if pretrained or arguments.keys() - {"num_classes", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir"}:
        raise ValueError("resnet20 has no weights in timm and takes no arguments: give its weights as a file")
    return ResNet20()
