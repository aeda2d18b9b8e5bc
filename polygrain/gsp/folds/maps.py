"""Feature maps of stored images, cached for a frozen backbone without augmentation."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from polygrain.compute import device
from polygrain.compute.blocks import blocks
from polygrain.encoder.views import Augmentation, augment, centre_crop, centre_square
from polygrain.gsp.folds.trunk import Trunk
from polygrain.runner.progress import progress
from polygrain.store import arrays

MEMORY = 4 * 2**30  # bytes


class Whole(NamedTuple):
    """Of whole images stored as squares: width over height, and the part of the shorter side to evaluate."""

    aspects: Float[Tensor, " image"]
    share: float


class Maps:
    """The maps of a backbone over stored images, on the backbone's device; cached if they fit into 4 GiB."""

    def __init__(
        self,
        backbone: Trunk,
        pixels: arrays.Reader,
        size: int,
        augmentation: Augmentation | None,
        ratio: float,
        precision: device.Precision,
        batch: int,
        whole: Whole | None = None,
    ) -> None:
        self.backbone, self.pixels, self.size = backbone, pixels, size
        self.augmentation, self.ratio, self.precision, self.batch = augmentation, ratio, precision, batch
        self.whole = whole
        self.where = next(backbone.buffers()).device
        self.cached: Tensor | None = None
        self.shape = tuple(self.compute(np.zeros(1, np.int64), None).shape[1:])
        fits = 4 * len(pixels) * int(np.prod(self.shape)) <= MEMORY
        if fits and augmentation is None and not backbone.is_trained:
            self.cached = self.compute_all()

    def compute_all(self) -> Tensor:
        maps = torch.empty(len(self.pixels), *self.shape)
        for part in progress(blocks(len(self.pixels), self.batch), "feature maps", unit="batch"):
            maps[part] = self.compute(np.arange(part.start, part.stop), None)
        return maps

    def compute(self, rows: np.ndarray, generator: torch.Generator | None) -> Tensor:
        views = self.views(rows, generator)
        with device.autocast(self.where, self.precision):
            return self.backbone(views).float()

    def views(self, rows: np.ndarray, generator: torch.Generator | None) -> Float[Tensor, "image 3 y x"]:
        """The backbone's input in 0..1: random views with a generator, or the middle of each image."""
        images = device.sent(torch.from_numpy(self.pixels[rows]), self.where)
        aspects = None if self.whole is None else self.whole.aspects[torch.from_numpy(rows)]
        if generator is not None and self.augmentation is not None:
            return augment(images, self.size, self.augmentation, generator, self.ratio, aspects)
        if self.whole is None or aspects is None:
            return centre_crop(images, self.size)
        return centre_square(images, self.size, aspects, self.whole.share)

    def train(
        self, rows: Int[Tensor, " image"], generator: torch.Generator, is_frozen: bool
    ) -> Float[Tensor, "image channel y x"]:
        """The maps of augmented views, with a gradient unless the backbone is frozen (in this step)."""
        if self.cached is not None:
            return device.sent(self.cached[rows], self.where)
        with torch.set_grad_enabled(self.backbone.is_trained and not is_frozen):
            return self.compute(rows.numpy(), generator)

    def plain(self, rows: Int[np.ndarray, " image"]) -> Iterator[Float[Tensor, "image channel y x"]]:
        """The maps without augmentation, batch by batch."""
        for part in blocks(len(rows), self.batch):
            block = rows[part]
            with torch.no_grad():
                maps = self.compute(block, None) if self.cached is None else self.cached[torch.from_numpy(block)]
            yield maps.to(self.where)
