"""How many images of a network fit into the memory at once, counted on a network without values."""

import os
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from polygrain.encoder.config import AdaptorConfig, Config
from polygrain.encoder.model import Model

SHARE = 0.5  # of the memory: the rest is for the weights, the optimizer, the images, and what else runs
FEWEST = 8


class Held(NamedTuple):
    """Bytes that one image takes, in float32."""

    training: int
    """kept for the backward pass while adaptors learn"""
    seeing: int
    """of the largest layer's input and output, without training"""


def held(config: Config, width: int = 48) -> Held:
    """What one image takes in the network with one adaptor set of `width` hidden units; nothing is computed."""
    with torch.device("meta"):
        model = Model(config.model_copy(update={"adaptors": None}))
        adaptors = AdaptorConfig(names=["one"], width=width, fusion="average")
        model.insert(model.new_adaptors(adaptors), adaptors)
        images = torch.zeros(1, 3, config.size, config.size)
    own = {storage(tensor) for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, int] = {}
    largest = 0

    def keep(tensor: Tensor) -> Tensor:
        if storage(tensor) not in own:
            kept[storage(tensor)] = tensor.untyped_storage().nbytes()
        return tensor

    def measure(_: nn.Module, given: tuple[object, ...], made: object) -> None:
        nonlocal largest
        tensors = [tensor for tensor in (*given, made) if isinstance(tensor, Tensor)]
        largest = max(largest, sum(tensor.nbytes for tensor in tensors))

    for module in model.modules():
        if not list(module.children()):
            module.register_forward_hook(measure)
    with saved_tensors_hooks(keep, lambda tensor: tensor):
        embeddings = model(images)  # held until all is counted, so that no storage's number is given twice
    assert embeddings.requires_grad
    # Beside a layer's own input and output there are a residual and a copy under way.
    return Held(sum(kept.values()), 2 * largest)


def storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def total() -> int:
    """Bytes of memory of the GPU that stages would take, or of the machine."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_properties(0).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def fitting(wanted: int, each: int, memory: int) -> int:
    """The batch: `wanted`, halved until so many images of `each` bytes fit into their share of the memory."""
    while wanted > FEWEST and wanted * each > SHARE * memory:
        wanted //= 2
    return wanted
