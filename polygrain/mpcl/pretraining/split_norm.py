"""Batch norm over parts of a batch: what keeps a momentum pair from cheating on a single device.

A batch norm tells each image who shares its batch. If a query and its key meet the same company, matching statistics is
easier than matching images. MoCo shuffles the keys between devices; on one device the batch is cut into parts,
each normalised alone, and the keys are shuffled between the parts.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from polygrain.compute import device


class SplitBatchNorm2d(nn.BatchNorm2d):
    """While training, image i is normalised with the images of its part, i modulo `splits`; plain in evaluation."""

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    momentum: float

    def __init__(self, features: int, splits: int, eps: float, momentum: float | None) -> None:
        super().__init__(features, eps, momentum)
        self.splits = splits

    def forward(self, images: Float[Tensor, "batch channel y x"]) -> Float[Tensor, "batch channel y x"]:
        if not self.training:
            return super().forward(images)
        batch, channels, *rest = images.shape
        if batch % self.splits:
            raise ValueError(f"a batch of {batch} does not divide into {self.splits} parts: choose one that does")
        mean, variance = self.running_mean.repeat(self.splits), self.running_var.repeat(self.splits)
        whole = functional.batch_norm(
            images.reshape(batch // self.splits, channels * self.splits, *rest),
            mean,
            variance,
            self.weight.repeat(self.splits),
            self.bias.repeat(self.splits),
            training=True,
            momentum=self.momentum,
            eps=self.eps,
        )
        self.running_mean.copy_(mean.view(self.splits, channels).mean(0))
        self.running_var.copy_(variance.view(self.splits, channels).mean(0))
        self.num_batches_tracked += 1
        return whole.view(batch, channels, *rest)


def has_batch_norm(module: nn.Module) -> bool:
    return any(isinstance(part, _BatchNorm) for part in module.modules())


def split_batch_norms(module: nn.Module, splits: int) -> nn.Module:
    """The module with every batch norm cut into `splits` parts; weights and names in its state stay as they were.

    ValueError for batch norms of another kind (fused with an activation, say), which would leak unseen.
    """
    for name, part in list(module.named_modules()):
        if type(part) is nn.BatchNorm2d:
            split = SplitBatchNorm2d(part.num_features, splits, part.eps, part.momentum)
            split.load_state_dict(part.state_dict())
            parent, _, child = name.rpartition(".")
            setattr(module.get_submodule(parent), child, split)
        elif isinstance(part, _BatchNorm) and not isinstance(part, SplitBatchNorm2d):
            raise ValueError(
                f"{name} is a {type(part).__name__}, which cannot be cut into parts; choose an encoder with plain "
                "BatchNorm2d or without batch norm, or a framework without a queue"
            )
    return module


def shuffled(network: Callable[[Tensor], Tensor], images: Tensor, generator: torch.Generator) -> Tensor:
    """network(images) with the images in a random order while inside, so that parts have other members."""
    order = torch.randperm(len(images), generator=generator)
    there, back = (device.sent(places, images.device) for places in (order, torch.argsort(order)))
    return network(images[there])[back]
