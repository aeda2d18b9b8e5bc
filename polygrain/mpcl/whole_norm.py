"""Batch norm over all processes: each has a part of the batch, and all normalise by the statistics of the whole.

As torch.nn.SyncBatchNorm, which only GPUs have. A process counts by its pixels: parts may differ in images and in size.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from polygrain.compute import processes


def moments(images: Float[Tensor, "batch channel y x"]) -> Float64[Tensor, "3 channel"]:
    """Of each channel the number of pixels, their sum and the sum of their squares: what adds up over parts.

    In float64, where a variance may be taken from them: in float32 a large mean would swallow it.
    """
    count, channels = images.numel() // images.shape[1], images.shape[1]
    if not count:
        return torch.zeros(3, channels, dtype=torch.float64, device=images.device)
    variance, mean = (found.double() for found in torch.var_mean(images, (0, 2, 3), correction=0))
    return count * torch.stack([torch.ones_like(mean), mean, variance + mean.square()])


def mean_and_variance(sums: Float64[Tensor, "3 channel"]) -> tuple[Tensor, Tensor]:
    """Of each channel, over all of its pixels; the variance without Bessel's correction."""
    count, total, squares = sums
    mean = total / count
    return mean, (squares / count - mean.square()).clamp_(min=0)


class Standardised(torch.autograd.Function):
    """This process's part of a batch norm, whose mean and variance hang on the parts of all.

    Gradients are of what the losses of all processes add up to, as in `training/whole_batch.py`. Those of weight and
    bias are this process's share, which is added up with the other parameters'.
    """

    @staticmethod
    def forward(
        ctx: object,
        images: Tensor,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        variance: Tensor,
        count: Tensor,
        eps: float,
    ) -> Tensor:
        ctx.save_for_backward(images, weight, mean, (variance + eps).rsqrt(), count)
        return functional.batch_norm(images, mean, variance, weight, bias, eps=eps)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> tuple[Tensor | None, ...]:
        images, weight, mean, scale, count = ctx.saved_tensors
        standard = (images - mean[:, None, None]) * scale[:, None, None]
        own = torch.stack([gradient.sum((0, 2, 3)), (gradient * standard).sum((0, 2, 3))])
        whole = own.clone()
        processes.add_up([whole])
        through_mean, through_variance = (whole / count)[:, :, None, None]
        of_images = (weight * scale)[:, None, None] * (gradient - through_mean - standard * through_variance)
        return of_images, own[1], own[0], None, None, None, None


class WholeBatchNorm2d(nn.BatchNorm2d):
    """nn.BatchNorm2d, and just that in one process; of several, each sees the pixels of all while training.

    All must come here equally often, in the same order. A part may be empty, but not all of them.
    """

    def forward(self, images: Float[Tensor, "batch channel y x"]) -> Float[Tensor, "batch channel y x"]:
        if not self.training or processes.count() == 1:
            return super().forward(images)
        found = moments(images.detach())
        processes.add_up([found])
        count = found[0]
        mean, variance = (value.to(self.running_mean.dtype) for value in mean_and_variance(found))
        unbiased = variance * (count / (count - 1)).to(variance.dtype)  # what torch keeps, but does not divide by
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(unbiased, self.momentum)
            self.num_batches_tracked += 1
        return Standardised.apply(images, self.weight, self.bias, mean, variance, count.to(mean.dtype), self.eps)


def see_all_processes(module: nn.Module) -> nn.Module:
    """The module, each of its batch norms over all processes; weights and names in its state stay as they were.

    ValueError for batch norms of another kind (fused with an activation, say), which would see their own part alone.
    """
    for name, part in module.named_modules():
        if type(part) is nn.BatchNorm2d:
            part.__class__ = WholeBatchNorm2d  # it has the same state, and may be in use at several places
        elif isinstance(part, _BatchNorm) and not isinstance(part, WholeBatchNorm2d):
            raise ValueError(
                f"{name} is a {type(part).__name__}, which cannot see what other processes have; choose an encoder "
                "with plain BatchNorm2d or without batch norm"
            )
    return module


@contextmanager
def statistics_anew(module: nn.Module) -> Iterator[None]:
    """What goes through the module within, in all processes, leaves its statistics in place of the running ones.

    Over all pixels of all batches: mean squares less the squared mean, as in fvcore's `update_bn_stats`, which weighs
    batches by their pixels, too. A batch norm that nothing went through keeps what it had.
    """
    norms = [part for part in module.modules() if isinstance(part, _BatchNorm)]
    sums = {norm: norm.running_mean.new_zeros(3, norm.num_features, dtype=torch.float64) for norm in norms}

    def record(norm: nn.Module, inputs: tuple[Tensor]) -> None:
        sums[norm] += moments(inputs[0].detach())

    hooks = [norm.register_forward_pre_hook(record) for norm in norms]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    processes.add_up(list(sums.values()))
    for norm, total in sums.items():
        if total.any():
            mean, variance = mean_and_variance(total)
            norm.running_mean.copy_(mean)
            norm.running_var.copy_(variance)
