"""Embeddings of stored images, batch by batch."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from polygrain.compute import device, processes
from polygrain.compute.ahead import ahead
from polygrain.compute.blocks import blocks
from polygrain.encoder.model import Model
from polygrain.encoder.views import centre_crop
from polygrain.runner.progress import progress
from polygrain.store import arrays


def extract(
    model: Model,
    pixels: arrays.Reader,
    rows: np.ndarray,
    batch: int,
    precision: device.Precision,
    description: str,
    compute: Callable[[Tensor], Tensor] | None = None,
) -> Iterator[np.ndarray]:
    """Yields float32 blocks of embeddings, in the order of `rows`; `compute` may replace the model's forward."""
    device_of_model = next(model.parameters()).device
    if pixels.shape[1] != model.config.resize:
        raise ValueError(
            f"the images are stored at {pixels.shape[1]} px, the model expects {model.config.resize}: "
            "set images.side and encoder.resize to the same value"
        )
    model.eval()
    parts = blocks(len(rows), batch)
    read = ahead(parts, lambda part: device.staged(pixels[rows[part]], device_of_model))
    for _, images in progress(read, description, len(parts), unit="batch"):
        block = images.to(device_of_model, non_blocking=True)
        with torch.inference_mode(), device.autocast(device_of_model, precision):
            embeddings = in_passes(compute or model, centre_crop(block, model.config.size), model.config.side)
        yield embeddings.float().cpu().numpy()


def in_passes(compute: Callable[[Tensor], Tensor], images: Tensor, side: int) -> Tensor:
    """What `compute` makes of the images, as many in a pass as suit the machine and the side of the network's input."""
    passes = images.split(device.inference(side)[0])
    return torch.cat([halved(compute, part) for part in passes]) if len(passes) > 1 else halved(compute, images)


def halved(compute: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """What `compute` makes of the images, in two passes where one does not fit into the GPU's memory."""
    try:
        return compute(images)
    except torch.OutOfMemoryError:
        if len(images) == 1:
            raise
    # Here and not above: there the error still holds what the pass has taken.
    torch.cuda.empty_cache()
    return torch.cat([compute(half) for half in images.chunk(2)])


def embed(
    model: Model, pixels: arrays.Reader, rows: np.ndarray, batch: int, precision: device.Precision, description: str
) -> np.ndarray:
    """All of `extract` as one array `image dim`."""
    blocks = list(extract(model, pixels, rows, batch, precision, description))
    return np.concatenate(blocks) if blocks else np.empty((0, model.dim), np.float32)


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
