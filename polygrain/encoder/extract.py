"""Embeddings of stored images."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from polygrain.compute import device, processes
from polygrain.compute.ahead import ahead
from polygrain.compute.blocks import blocks
from polygrain.encoder.model import Model
from polygrain.encoder.views import centre_crop
from polygrain.runner.progress import progress
from polygrain.store import arrays


def embed(
    model: Model,
    pixels: arrays.Reader,
    rows: np.ndarray,
    batch: int,
    precision: device.Precision,
    description: str,
    compute: Callable[[Tensor], Tensor] | None = None,
) -> Float32[np.ndarray, " row *dim"]:
    """Embeddings of some rows, or what `compute` makes of them; in batches of images of one shape."""
    device_of_model, is_whole = next(model.parameters()).device, model.config.shape == "whole"
    if pixels.shape[1] != model.config.resize:
        raise ValueError(
            f"the images are stored at {pixels.shape[1]} px, the model expects {model.config.resize}: "
            "set images.side and encoder.resize to the same value"
        )
    model.eval()
    alike = pixels.alike(rows) if is_whole else [np.arange(len(rows))]
    parts = [places[part] for places in alike for part in blocks(len(places), batch)]
    result = np.empty((len(rows), model.dim), np.float32)

    def load(places: np.ndarray) -> Tensor:
        own = rows[places]
        return device.staged(pixels.whole(own) if is_whole else pixels[own], device_of_model)

    for places, images in progress(ahead(parts, load), description, len(parts), unit="batch"):
        block = images.to(device_of_model, non_blocking=True)
        with torch.inference_mode(), device.autocast(device_of_model, precision):
            found = in_passes(compute or model, centre_crop(block, model.config.size), model.config.side)
        if found.shape[1:] != result.shape[1:]:
            result = np.empty((len(rows), *found.shape[1:]), np.float32)
        result[places] = found.float().cpu().numpy()
    return result


def in_passes(compute: Callable[[Tensor], Tensor], images: Tensor, side: int) -> Tensor:
    """`compute` over the images, in batches that suit the machine and the side of the network's input."""
    height, width = images.shape[2:]
    passes = images.split(max(1, device.inference(side)[0] * min(height, width) // max(height, width)))
    return torch.cat([halved(compute, part) for part in passes]) if len(passes) > 1 else halved(compute, images)


def halved(compute: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """`compute` over the images, in two passes where one does not fit into the GPU's memory."""
    try:
        return compute(images)
    except torch.OutOfMemoryError:
        if len(images) == 1:
            raise
    # Here and not above: there the error still holds the memory of the pass.
    torch.cuda.empty_cache()
    return torch.cat([compute(half) for half in images.chunk(2)])


def whole_batches(n: int, batch: int) -> slice:
    """This process's share of n rows in whole batches, the batches of a single process."""
    share = processes.share(-(-n // batch))
    return slice(min(n, batch * share.start), min(n, batch * share.stop))


def embed_shares(
    model: Model, pixels: arrays.Reader, rows: np.ndarray, batch: int, precision: device.Precision, description: str
) -> np.ndarray:
    """`embed` in all processes, where each embeds its share of the rows."""
    part = rows[whole_batches(len(rows), batch)]
    return processes.gather_array(embed(model, pixels, part, batch, precision, description))
