"""BN-Inception (Ioffe and Szegedy, 2015), GSP's network, registered with timm, which does not have it.

Tensors are named as in Caffe's model and in the ports of it (`pretrainedmodels`), so that published weights load as a
file. Such weights expect blue, green and red in 0..255 less a mean. Pooling rounds up, as Caffe's does.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from timm.models import register_model
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, max_pool2d

MEAN = (128 / 255, 117 / 255, 104 / 255)  # of red, green and blue; the other way round in Caffe


class Block(NamedTuple):
    """Channels of the branches 1x1, 3x3 (reduced, then whole), 3x3 twice, and of the pooled one; its kind of pooling.

    A block without 1x1 halves the map, and its pooled branch has no layer.
    """

    single: int
    reduced: int
    whole: int
    double_reduced: int
    double: int
    pooled: int
    pool: str = "average"


BLOCKS = {
    "3a": Block(64, 64, 64, 64, 96, 32),
    "3b": Block(64, 64, 96, 64, 96, 64),
    "3c": Block(0, 128, 160, 64, 96, 0, "maximum"),
    "4a": Block(224, 64, 96, 96, 128, 128),
    "4b": Block(192, 96, 128, 96, 128, 128),
    "4c": Block(160, 128, 160, 128, 160, 128),
    "4d": Block(96, 128, 192, 160, 192, 128),
    "4e": Block(0, 128, 192, 192, 256, 0, "maximum"),
    "5a": Block(352, 192, 320, 160, 224, 128),
    "5b": Block(352, 192, 320, 192, 224, 128, "maximum"),
}


class BNInception(nn.Module):
    """Images to maps of a 32nd of their side and 1,024 channels, without the classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.pretrained_cfg = {"mean": MEAN, "std": (1 / 255,) * 3, "classifier": "last_linear"}
        self.feature_info = []
        self.add("conv1_7x7_s2", 3, 64, 7, 2)
        self.add("conv2_3x3_reduce", 64, 64)
        self.add("conv2_3x3", 64, 192, 3)
        width = 192
        for name, block in BLOCKS.items():
            before, at, stride = width, f"inception_{name}", 1 if block.single else 2
            if block.single:
                self.add(f"{at}_1x1", before, block.single)
                self.add(f"{at}_pool_proj", before, block.pooled)
            self.add(f"{at}_3x3_reduce", before, block.reduced)
            self.add(f"{at}_3x3", block.reduced, block.whole, 3, stride)
            self.add(f"{at}_double_3x3_reduce", before, block.double_reduced)
            self.add(f"{at}_double_3x3_1", block.double_reduced, block.double, 3)
            self.add(f"{at}_double_3x3_2", block.double, block.double, 3, stride)
            width = block.single + block.whole + block.double + (block.pooled or before)
            self.feature_info.append({"num_chs": width, "module": at})
        self.num_features = width

    def add(self, name: str, before: int, width: int, kernel: int = 1, stride: int = 1) -> None:
        self.add_module(name, nn.Conv2d(before, width, kernel, stride, kernel // 2))
        self.add_module(f"{name}_bn", nn.BatchNorm2d(width))

    def apply_layers(self, x: Tensor, *names: str) -> Tensor:
        for name in names:
            x = torch.relu(getattr(self, f"{name}_bn")(getattr(self, name)(x)))
        return x

    def apply_block(self, x: Tensor, name: str, block: Block) -> Tensor:
        at = f"inception_{name}"
        whole = self.apply_layers(x, f"{at}_3x3_reduce", f"{at}_3x3")
        double = self.apply_layers(x, f"{at}_double_3x3_reduce", f"{at}_double_3x3_1", f"{at}_double_3x3_2")
        if not block.single:
            return torch.cat([whole, double, max_pool2d(x, 3, 2, ceil_mode=True)], 1)
        pooled = avg_pool2d(x, 3, 1, 1) if block.pool == "average" else max_pool2d(x, 3, 1, 1)
        single, pooled = self.apply_layers(x, f"{at}_1x1"), self.apply_layers(pooled, f"{at}_pool_proj")
        return torch.cat([single, whole, double, pooled], 1)

    def forward_intermediates(
        self, x: Float[Tensor, "batch 3 y x"], indices: list[int], **_: bool
    ) -> list[Float[Tensor, "batch channel row column"]]:
        """The maps after these blocks, counted from 0, as timm's networks return them."""
        x = max_pool2d(self.apply_layers(x.flip(1), "conv1_7x7_s2"), 3, 2, ceil_mode=True)
        x = max_pool2d(self.apply_layers(x, "conv2_3x3_reduce", "conv2_3x3"), 3, 2, ceil_mode=True)
        maps = []
        for name, block in list(BLOCKS.items())[: max(indices) + 1]:
            x = self.apply_block(x, name, block)
            maps.append(x)
        return [maps[i] for i in indices]

    def forward_features(self, x: Float[Tensor, "batch 3 y x"]) -> Float[Tensor, "batch 1024 row column"]:
        """The map after the last block."""
        return self.forward_intermediates(x, [len(BLOCKS) - 1])[0]

    def reset_classifier(self, num_classes: int) -> None:
        """There is none."""


def checkpoint_filter_fn(tensors: dict[str, Tensor], network: BNInception) -> dict[str, Tensor]:
    """Published tensors as they are needed here: older files have norms of `1 channel`, and no count of batches."""
    counts = {name: tensor for name, tensor in network.state_dict().items() if name.endswith("num_batches_tracked")}
    return counts | {name: value[0] if "_bn." in name and value.ndim == 2 else value for name, value in tensors.items()}


@register_model
def bn_inception(pretrained: bool = False, **arguments: object) -> BNInception:
    """The entry point that timm calls; it has no weights to download and no settings."""
    if pretrained or arguments.keys() - {"num_classes", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir"}:
        raise ValueError("bn_inception has no weights in timm and takes no arguments: give its weights as a file")
    return BNInception()
