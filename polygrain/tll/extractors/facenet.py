"""FaceNet's network, Inception-ResNet-v1 (Szegedy et al., 2016), under the names of facenet-pytorch.

timm has its second version alone. The embedding behind the last block is left out, since TLL reads the block.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional


class Convolution(nn.Module):
    """A convolution without bias, batch norm and ReLU."""

    def __init__(self, inputs: int, outputs: int, size: int | tuple[int, int], stride: int = 1, pad: bool = True):
        super().__init__()
        sides = (size, size) if isinstance(size, int) else size
        padding = tuple(side // 2 if pad else 0 for side in sides)
        self.conv = nn.Conv2d(inputs, outputs, sides, stride, padding, bias=False)  # type: ignore[arg-type]
        self.bn = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.bn(self.conv(x)))


Step = tuple[Any, ...]
"""Outputs, size, stride and padding of a convolution."""


def chain(inputs: int, steps: Sequence[Step]) -> nn.Module:
    """Convolutions after one another; a single one is no sequence, which its name tells."""
    widths = [inputs, *(step[0] for step in steps)]
    made = [Convolution(width, *step) for width, step in zip(widths, steps, strict=False)]
    return made[0] if len(made) == 1 else nn.Sequential(*made)


class Branches(nn.Module):
    """Chains of convolutions over one input, side by side."""

    def __init__(self, inputs: int, branches: Sequence[Sequence[Step]]) -> None:
        super().__init__()
        self.count = len(branches)
        for i, steps in enumerate(branches):
            self.add_module(f"branch{i}", chain(inputs, steps))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.get_submodule(f"branch{i}")(x) for i in range(self.count)], 1)


class Residual(Branches):
    """Branches that a convolution brings back to the width of the input, scaled and added to it."""

    def __init__(self, width: int, branches: Sequence[Sequence[Step]], scale: float, relu: bool = True) -> None:
        super().__init__(width, branches)
        self.conv2d = nn.Conv2d(sum(steps[-1][0] for steps in branches), width, 1)
        self.scale, self.relu = scale, relu

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.scale * self.conv2d(super().forward(x))
        return functional.relu(x) if self.relu else x


class Reduction(Branches):
    """Branches of stride 2 beside a maximum over 3 x 3 places."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([super().forward(x), functional.max_pool2d(x, 3, 2)], 1)


LAST = (2, False)  # stride and padding where the map shrinks
A = [[(32, 1)], [(32, 1), (32, 3)], [(32, 1), (32, 3), (32, 3)]]
B = [[(128, 1)], [(128, 1), (128, (1, 7)), (128, (7, 1))]]  # type: list[list[Step]]
C = [[(192, 1)], [(192, 1), (192, (1, 3)), (192, (3, 1))]]  # type: list[list[Step]]


class InceptionResNet(nn.Module):
    """`batch 3 y x` to the last block's map, `batch 1792 y x`."""

    pretrained_cfg: ClassVar = {"classifier": ("last_linear", "last_bn", "logits")}  # of a checkpoint, as timm says it

    def __init__(self) -> None:
        super().__init__()
        self.conv2d_1a = Convolution(3, 32, 3, *LAST)
        self.conv2d_2a = Convolution(32, 32, 3, 1, False)
        self.conv2d_2b = Convolution(32, 64, 3)
        self.maxpool_3a = nn.MaxPool2d(3, 2)
        self.conv2d_3b = Convolution(64, 80, 1)
        self.conv2d_4a = Convolution(80, 192, 3, 1, False)
        self.conv2d_4b = Convolution(192, 256, 3, *LAST)
        self.repeat_1 = nn.Sequential(*(Residual(256, A, 0.17) for _ in range(5)))
        self.mixed_6a = Reduction(256, [[(384, 3, *LAST)], [(192, 1), (192, 3), (256, 3, *LAST)]])
        self.repeat_2 = nn.Sequential(*(Residual(896, B, 0.1) for _ in range(10)))
        shrunk = [[(256, 1), (width, 3, *LAST)] for width in (384, 256)]
        self.mixed_7a = Reduction(896, [*shrunk, [(256, 1), (256, 3), (256, 3, *LAST)]])
        self.repeat_3 = nn.Sequential(*(Residual(1792, C, 0.2) for _ in range(5)))
        self.block8 = Residual(1792, C, 1.0, relu=False)

    def forward(self, x: Tensor) -> Tensor:
        for part in self.children():
            x = part(x)
        return x
