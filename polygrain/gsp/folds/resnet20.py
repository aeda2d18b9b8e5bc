"""ResNet-20 for images of 32 px (He et al., 2016, 4.2), registered with timm, which does not have it.

A layer of 16 channels, then three stages of three blocks with 16, 32 and 64 channels. Tensors are named as in
torchvision's ResNets, so that published weights for CIFAR load as a file.
"""

import torch
from jaxtyping import Float
from timm.models import register_model
from timm.models.resnet import BasicBlock, downsample_conv
from torch import Tensor, nn

WIDTHS = (16, 32, 64)
BLOCKS = 3


class ResNet20(nn.Module):
    """Images to maps of a quarter of their side and 64 channels.

    Residual branches do not start at 0: with frozen batch norm they would stay there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pretrained_cfg = {"mean": (0.5, 0.5, 0.5), "std": (1.0, 1.0, 1.0)}  # what GSP's code gives it
        self.conv1 = nn.Conv2d(3, WIDTHS[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        self.layer1 = stage(WIDTHS[0], WIDTHS[0], 1)
        self.layer2 = stage(WIDTHS[0], WIDTHS[1], 2)
        self.layer3 = stage(WIDTHS[1], WIDTHS[2], 2)
        self.num_features = WIDTHS[-1]
        self.feature_info = [{"num_chs": width, "module": f"layer{i}"} for i, width in enumerate(WIDTHS, 1)]
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward_intermediates(
        self, x: Float[Tensor, "batch 3 y x"], indices: list[int], **_: bool
    ) -> list[Float[Tensor, "batch channel row column"]]:
        """The maps after these stages, counted from 0, as timm's networks return them."""
        x, maps = torch.relu(self.bn1(self.conv1(x))), []
        for layer in (self.layer1, self.layer2, self.layer3)[: max(indices) + 1]:
            x = layer(x)
            maps.append(x)
        return [maps[i] for i in indices]

    def forward_features(self, x: Float[Tensor, "batch 3 y x"]) -> Float[Tensor, "batch 64 row column"]:
        """The map after the last stage."""
        return self.forward_intermediates(x, [len(WIDTHS) - 1])[0]

    def reset_classifier(self, num_classes: int) -> None:
        """There is none."""


def stage(before: int, width: int, stride: int) -> nn.Sequential:
    shortcut = downsample_conv(before, width, 1, stride=stride) if stride > 1 else None
    rest = [BasicBlock(width, width) for _ in range(BLOCKS - 1)]
    return nn.Sequential(BasicBlock(before, width, stride, shortcut), *rest)


@register_model
def resnet20(pretrained: bool = False, **arguments: object) -> ResNet20:
    """The entry point that timm calls; it has no weights to download and no settings."""
    if pretrained or arguments.keys() - {"num_classes", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir"}:
        raise ValueError("resnet20 has no weights in timm and takes no arguments: give its weights as a file")
    return ResNet20()
