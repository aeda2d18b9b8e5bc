"""Inference of convolutional networks by onnxruntime on a CPU, where it is faster than torch.

The kind of network decides, and never a clock, so that the same images have the same embeddings twice.
"""

import functools
import importlib.util
import io
import logging
import os
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from polygrain.compute.errors import first_line
from polygrain.encoder.adaptors import AdaptedBlock
from polygrain.encoder.prepare import Convolution

log = logging.getLogger(__name__)
ENGINES = ("onnx", "torch")
MOST = 32  # images of a pass: onnxruntime keeps the memory of the largest
AGREES = 1e-4  # of the largest output; a program that differs by more is not taken

Program = Callable[[Tensor], list[Tensor]]
building = threading.Lock()
# The program of each network by shape of an image; None where torch computes. Kept outside the networks, since a
# program cannot be copied.
programs: weakref.WeakKeyDictionary[nn.Module, dict[torch.Size, Program | None]] = weakref.WeakKeyDictionary()


class Outputs(nn.Module):
    """A network from its normalised input to the outputs of its blocks, for the exporter."""

    def __init__(self, network: nn.Module, outputs: Program) -> None:
        super().__init__()
        self.network, self.outputs = network, outputs

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.outputs(x))


def engine() -> str:
    """POLYGRAIN_ENGINE, or onnx where onnxruntime is installed; ValueError for an unknown one."""
    name = os.environ.get("POLYGRAIN_ENGINE") or "onnx"
    if name not in ENGINES:
        raise ValueError(f"POLYGRAIN_ENGINE is {name!r}; known: {', '.join(ENGINES)}")
    return name if importlib.util.find_spec("onnxruntime") else "torch"


def suits(network: nn.Module, x: Tensor) -> bool:
    """Whether onnxruntime may compute this: nothing trains, norms are folded, and there are no adaptors."""
    if not torch.is_inference_mode_enabled() or torch.is_autocast_enabled("cpu"):
        return False
    if x.is_cuda or x.dtype != torch.float32 or engine() != "onnx":
        return False
    if any(isinstance(part, AdaptedBlock) for part in network.modules()):
        return False
    return any(isinstance(part, Convolution) for part in network.modules())


def outputs_of(network: nn.Module, outputs: Program, x: Tensor) -> list[Tensor]:
    """The `outputs` of a network's blocks, by its program where there is one, else by torch."""
    if not suits(network, x):
        return outputs(x)
    with building:
        made, shape = programs.setdefault(network, {}), x.shape[1:]
        if shape not in made:
            made[shape] = build(network, outputs, shape, next(iter(made.values()), None))
        program = made[shape]
    return program(x) if program else outputs(x)


def build(network: nn.Module, outputs: Program, shape: torch.Size, earlier: Program | None) -> Program | None:
    """The program of a network, or its `earlier` one, if it agrees for this shape; None, said in the log, if not."""
    images = torch.rand(3, *shape, generator=torch.Generator().manual_seed(0))
    try:
        program = earlier or functools.partial(run, session(Outputs(network, outputs), images[:2]))
        for expected, found in zip(outputs(images), program(images), strict=True):
            if not (found - expected).abs().max() <= AGREES * expected.abs().max():
                raise ValueError("its outputs differ")
    except Exception as error:  # whatever a network's own code, the exporter or onnxruntime raises
        say_once(f"{type(network).__name__} runs in torch, not in onnxruntime ({first_line(error)})")
        return None
    return program


def session(whole: Outputs, images: Tensor) -> "onnxruntime.InferenceSession":  # type: ignore[name-defined]  # noqa: F821
    """The network in onnxruntime, on as many threads as torch has."""
    import onnxruntime

    file, options = io.BytesIO(), onnxruntime.SessionOptions()
    with torch.inference_mode(False), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tracer names each size that it takes for a constant
        axes = {"images": {0: "batch", 2: "height", 3: "width"}}
        # The older exporter takes a second, where the newer one takes 13.
        torch.onnx.export(
            whole, (images.clone(),), cast(Any, file), dynamo=False, input_names=["images"], dynamic_axes=axes
        )
    options.intra_op_num_threads = torch.get_num_threads()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])


def run(session: "onnxruntime.InferenceSession", x: Tensor) -> list[Tensor]:  # type: ignore[name-defined]  # noqa: F821
    """The outputs of a program, few images at a time."""
    passes = [session.run(None, {"images": part.contiguous().numpy()}) for part in x.split(MOST)]
    return [torch.cat(list(map(torch.from_numpy, parts))) for parts in zip(*passes, strict=True)]


@functools.cache
def say_once(message: str) -> None:
    log.info(message)
