"""Views of a batch of images on the model's device: its middle, squares along it, or random ones for each image."""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from jaxtyping import Float, Num, UInt8
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from polygrain.compute import processes
from polygrain.compute.device import sent
from polygrain.config.schema import Section

GREY = (0.299, 0.587, 0.114)
Ratio = Annotated[
    float, Field(ge=1, le=4, description="largest ratio of a crop's sides in the augmentation; 1: squares")
]


class Augmentation(Section):
    """The changes drawn for each image. All zero (and `smallest_crop` 1) gives the centre crop."""

    smallest_crop: float = Field(gt=0, le=1, description="smallest share of the area that a crop keeps")
    turn: float = Field(ge=0, le=180, description="largest angle of rotation, degrees")
    flip: float = Field(ge=0, le=1, description="probability to mirror left and right")
    stroke: float = Field(ge=0, le=8, description="largest thickening or thinning of lines, px on each side")
    jitter: float = Field(ge=0, lt=1, description="largest relative change of brightness, contrast and saturation")
    tint: float = Field(ge=0, lt=1, description="largest relative change of each colour channel on its own")
    grey: float = Field(ge=0, le=1, description="probability to drop the colour")
    blur: float = Field(
        ge=0, le=1, description="probability of a Gaussian blur, sigma up to 2 % of the side, 2 px at most"
    )


@dataclass(frozen=True)
class ShareOfDraws:
    """A generator that draws for a whole batch, of which this process holds the rows `share`."""

    generator: torch.Generator
    batch: int

    @property
    def share(self) -> slice:
        return processes.share(self.batch)


Draws = torch.Generator | ShareOfDraws


def uniform(draws: Draws, *shape: int, dim: int = 0) -> Tensor:
    """Numbers in 0..1; `dim` is the axis of images."""
    if isinstance(draws, torch.Generator):
        return torch.rand(shape, generator=draws)
    whole = (*shape[:dim], draws.batch, *shape[dim + 1 :])
    return torch.rand(whole, generator=draws.generator).narrow(dim, draws.share.start, shape[dim])


def centre_crop(pixels: UInt8[Tensor, "batch y x channel"], size: int) -> Float[Tensor, "batch 3 y_seen x_seen"]:
    """The middle of each image, its shorter side `size` px, channels first, in 0..1."""
    height, width = pixels.shape[1:3]
    border = min(height, width) - size
    if border < 0:
        raise ValueError(
            f"the images are stored at {size + border} px, the encoder wants {size}: set images.side to {size} or more"
        )
    top, left = (slice(border // 2, border // 2 + side - border) for side in (height, width))
    return pixels[:, top, left].permute(0, 3, 1, 2).float() / 255


def centre_square(
    pixels: UInt8[Tensor, "batch y x channel"], size: int, aspects: Float[Tensor, " batch"], share: float
) -> Float[Tensor, "batch 3 size size"]:
    """The middle of whole images stored as squares, brought back to proportion, channels first, in 0..1.

    `aspects` are widths over heights; the side of the middle is `share` of the shorter side.
    """
    theta = torch.zeros(len(pixels), 2, 3)
    theta[:, 0, 0], theta[:, 1, 1] = share * (1 / aspects).clamp_max(1), share * aspects.clamp_max(1)
    return resample(pixels, size, theta)


def squares_along(images: Num[Tensor, "batch 3 y x"]) -> list[Num[Tensor, "batch 3 side side"]]:
    """The fewest squares that cover the longer side of the images, at equal distances."""
    axis, side = (2, images.shape[3]) if images.shape[2] > images.shape[3] else (3, images.shape[2])
    longer = images.shape[axis]
    count = math.ceil(longer / side)
    starts = [round((longer - side) * place / max(1, count - 1)) for place in range(count)]
    return [images.narrow(axis, start, side) for start in starts]


def resample(
    pixels: UInt8[Tensor, "batch y x channel"], size: int, theta: Float[Tensor, "batch 2 3"]
) -> Float[Tensor, "batch 3 size size"]:
    """Each image through its affine map, bilinearly, channels first, in 0..1."""
    images = pixels.permute(0, 3, 1, 2).float() / 255
    grid = functional.affine_grid(sent(theta, images.device), [len(pixels), 3, size, size], align_corners=False)
    return functional.grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def augment(
    pixels: UInt8[Tensor, "batch y x channel"],
    size: int,
    params: Augmentation,
    generator: Draws,
    ratio: float = 1.0,
    aspects: Float[Tensor, " batch"] | None = None,
) -> Float[Tensor, "batch 3 size size"]:
    """One random view of each image, in 0..1. The generator is on the CPU, so every device draws the same views.

    With a `ShareOfDraws`, the images are one process's share of a batch and get their views of the batch. `ratio` is
    the largest of a crop's sides before it is squeezed to a square; 1: squares. `aspects` are widths over heights of
    whole images that are stored as squares, on the CPU.
    """
    images = crop_and_flip(pixels, size, params, generator, ratio, aspects)
    images = thicken(images, params, generator) if params.stroke else images
    images = change_colours(images, params, generator)
    return blur(images, params, generator) if params.blur else images


def crop_and_flip(
    pixels: UInt8[Tensor, "batch y x channel"],
    size: int,
    params: Augmentation,
    generator: Draws,
    ratio: float = 1.0,
    aspects: Float[Tensor, " batch"] | None = None,
) -> Float[Tensor, "batch 3 size size"]:
    """A crop of random area, ratio, place and angle, resampled bilinearly to size x size in one pass over the image."""
    if params.smallest_crop == 1 and params.flip == 0 and params.turn == 0 and aspects is None:
        return centre_crop(pixels, size)
    batch = len(pixels)
    area, left, top, mirror, turn = uniform(generator, 5, batch, dim=1)
    side = (params.smallest_crop + (1 - params.smallest_crop) * area).sqrt()
    angle = (2 * turn - 1) * math.radians(params.turn)
    sign = torch.where(mirror < params.flip, -1.0, 1.0)
    aspects = torch.ones(batch) if aspects is None else aspects
    width, height = stretch(side, ratio, aspects, generator)
    theta = torch.zeros(batch, 2, 3)
    theta[:, 0, 0] = sign * width * angle.cos()
    theta[:, 0, 1] = -height * angle.sin() / aspects
    theta[:, 1, 0] = sign * width * angle.sin() * aspects
    theta[:, 1, 1] = height * angle.cos()
    theta[:, 0, 2] = (2 * left - 1) * (1 - width)
    theta[:, 1, 2] = (2 * top - 1) * (1 - height)
    return resample(pixels, size, theta)


def stretch(
    side: Float[Tensor, " batch"], ratio: float, aspects: Float[Tensor, " batch"], generator: Draws
) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
    """Width and height of crops of the area side^2, as parts of the image; nothing is drawn for a ratio of 1.

    The logarithm of their ratio is uniform from 1 / ratio to ratio, as far as such an area fits into the image. In a
    strip where none fits, the largest crop is taken with the ratio nearest to the strip's.
    """
    widest, strip, area = math.log(ratio), aspects.log(), 2 * side.log()
    low, high = (strip + area).clamp(-widest, widest), (strip - area).clamp(-widest, widest)
    drawn = uniform(generator, len(side)) if ratio > 1 else torch.zeros(len(side))
    root = (0.5 * (torch.lerp(low, high, drawn) - strip)).exp()
    width, height = side * root, side / root
    over = torch.maximum(width, height).clamp_min(1)
    return width / over, height / over


def thicken(
    images: Float[Tensor, "batch 3 y x"], params: Augmentation, generator: Draws
) -> Float[Tensor, "batch 3 y x"]:
    """Grey-scale dilation or erosion by up to `stroke` px: the same character in a bolder or a lighter hand.

    A fraction of a pixel blends linearly between two radii. Light or dark grows by chance, since either may be ink.
    """
    drawn = sent(params.stroke * (2 * uniform(generator, len(images), 1, 1, 1) - 1), images.device)
    sign, left = drawn.sign(), drawn.abs()
    for _ in range(math.ceil(params.stroke)):
        padded = functional.pad(sign * images, [1] * 4, mode="replicate")
        images = torch.lerp(images, sign * functional.max_pool2d(padded, 3, 1), left.clamp(0, 1))
        left = left - 1
    return images


def change_colours(
    images: Float[Tensor, "batch 3 y x"], params: Augmentation, generator: Draws
) -> Float[Tensor, "batch 3 y x"]:
    """Brightness, contrast and saturation times 1 +- jitter, each channel times 1 +- tint, then grey by chance."""
    if not (params.jitter or params.tint or params.grey):
        return images
    factors = 1 + params.jitter * (2 * uniform(generator, 3, len(images), 1, 1, 1, dim=1) - 1)
    brightness, contrast, saturation = sent(factors, images.device)
    weights = sent(torch.tensor(GREY).view(1, 3, 1, 1), images.device)
    channels = 1 + params.tint * (2 * uniform(generator, len(images), 3, 1, 1) - 1)
    images = images * brightness * sent(channels, images.device)
    images = (images - images.mean((1, 2, 3), keepdim=True)) * contrast + images.mean((1, 2, 3), keepdim=True)
    grey = (images * weights).sum(1, keepdim=True)
    drop = sent(uniform(generator, len(images), 1, 1, 1) < params.grey, images.device)
    saturation = torch.where(drop, 0.0, saturation)
    return (grey + (images - grey) * saturation).clamp(0, 1)


def blur(images: Float[Tensor, "batch 3 y x"], params: Augmentation, generator: Draws) -> Float[Tensor, "batch 3 y x"]:
    """A separable Gaussian blur of some images, each with its own sigma.

    At 224 px the kernel has 23 px and sigma is in 0.1 to 2 px, as in SimCLR.
    """
    batch, side = len(images), images.shape[-1]
    radius = max(1, round(0.05 * side))
    sigma = 0.1 + (min(0.02 * side, 2.0) - 0.1) * uniform(generator, batch, 1).clamp_min(0)
    kernels = torch.exp(-0.5 * (torch.arange(-radius, radius + 1) / sigma).square())
    chosen = uniform(generator, batch, 1) < params.blur
    identity = functional.one_hot(torch.tensor(radius), 2 * radius + 1).float()
    kernels = torch.where(chosen, kernels / kernels.sum(1, keepdim=True), identity)
    kernels = sent(kernels.repeat_interleave(3, 0), images.device)
    stacked = functional.pad(images.flatten(0, 1)[None], [radius] * 4, mode="reflect")
    stacked = functional.conv2d(stacked, kernels[:, None, :, None], groups=3 * batch)
    return functional.conv2d(stacked, kernels[:, None, None, :], groups=3 * batch)[0].unflatten(0, (batch, 3))
