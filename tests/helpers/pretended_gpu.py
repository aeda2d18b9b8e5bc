"""A GPU that is not there: CPU tensors that say cuda:0, refuse partners that do not, and count what waits for them.

It sees what this thread calls from Python. It is blind to kernels and types that CUDA lacks, streams, memory, TF32.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._pytree import tree_leaves, tree_map

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")
READ = {"item", "tolist", "__bool__", "__int__", "__float__", "__index__", "__contains__"}
READ |= {"nonzero", "argwhere", "unique", "masked_select", "equal", "allclose", "bincount", "repeat_interleave"}
MOVES = {"to", "cpu", "cuda", "type_as"}
# They take tensors of two devices, or only compare them.
MIXES = {"copy_", "__setitem__", "__set__", "_has_compatible_shallow_copy_type", "is_same_size"}


def is_there(value: object) -> bool:
    return isinstance(value, Tensor) and value.__dict__.get("pretended", False)


def put(value: object, there: bool = True) -> object:
    if isinstance(value, Tensor):
        value.__dict__["pretended"] = there
    return value


def is_gpu(value: object) -> bool:
    return str(value).startswith("cuda") if isinstance(value, str | torch.device) else False


class PretendedGPU(TorchFunctionMode):
    """Within, `waits` counts by name what makes the host wait for the GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", str(func))
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        here = [tensor for tensor in tensors if not is_there(tensor) and tensor.ndim]
        there = any(map(is_there, tensors))
        if name == "__get__" and func.__self__ in (Tensor.device, Tensor.is_cuda, Tensor.is_cpu):
            told = {Tensor.device: GPU, Tensor.is_cuda: True, Tensor.is_cpu: False}
            return told[func.__self__] if there else func(*args)
        if name == "__set__" and func.__self__ is Tensor.data:
            func(*args)
            return put(args[0], is_there(args[1]))
        if name in MOVES and tensors:
            return self.move(func, name, args, kwargs)
        if name in ("numpy", "__array__") and there:
            raise TypeError("a tensor on cuda:0 is no array: call .cpu() first")
        if name in ("device", "_parse_to"):
            return func(*args, **kwargs)
        made = any(map(is_gpu, [kwargs.get("device"), *(word for word in args if isinstance(word, torch.device))]))
        self.check(name, args, kwargs, here, there, made)
        if made:
            args, kwargs = tree_map(lambda value: CPU if is_gpu(value) else value, (args, kwargs))
        result = func(*args, **kwargs)
        if made or (there and not (args and result is args[0])):
            tree_map(put, result)
        return result

    def check(self, name: str, args: tuple, kwargs: dict, here: list[Tensor], there: bool, made: bool) -> None:
        """Counts a wait; RuntimeError where CUDA would raise."""
        if name == "__getitem__" and there:
            if not is_there(args[0]):
                raise RuntimeError("a CPU tensor is indexed by one on cuda:0")
            kinds = [index.dtype for index in tree_leaves(args[1]) if isinstance(index, Tensor)]
            self.waits["index"] += bool(here) or torch.bool in kinds
        elif here and there and name not in MIXES:
            raise RuntimeError(f"{name}: tensors on cuda:0 and on the CPU, {[tuple(tensor.shape) for tensor in here]}")
        elif there and name in READ:
            self.waits[name] += 1
        elif (made and name in ("tensor", "as_tensor")) or (here and there and name in ("copy_", "__setitem__")):
            self.waits[f"{name} to the GPU"] += not kwargs.get("non_blocking", False)
        if kwargs.get("generator") is not None and (there or made):
            raise RuntimeError(f"{name}: a generator of the CPU for a tensor on cuda:0")

    def move(self, func: Any, name: str, args: tuple, kwargs: dict) -> Any:
        """A copy on the other device, or the tensor itself."""
        source, there = args[0], is_there(args[0])
        words = [*args[1:], *kwargs.values()]
        if "meta" in map(str, words):
            return func(*args, **kwargs)
        goal = there if name == "to" else name == "cuda"
        for word in words:
            if isinstance(word, str | torch.device | Tensor):
                goal = is_there(word) if isinstance(word, Tensor) else is_gpu(word)
        if goal != there:
            blocks = not (kwargs.get("non_blocking", False) or any(word is True for word in args[1:]))
            self.waits[f"copy {'to' if goal else 'from'} the GPU"] += blocks
        rest, named = tree_map(lambda word: CPU if is_gpu(word) else word, (args[1:], kwargs))
        result = source if name in ("cpu", "cuda") else func(source, *rest, **named)
        result = result.clone() if result is source and goal != there else result
        return put(result, goal) if goal else result


@contextmanager
def pretended_gpu() -> Iterator[Counter[str]]:
    """Within, torch has a GPU; yields the waits by name. In another one it is that one."""
    if outer := [mode for mode in _get_current_function_mode_stack() if isinstance(mode, PretendedGPU)]:
        yield outer[0].waits
        return
    mode, autocast, parameter = PretendedGPU(), torch.autocast, torch.nn.Parameter.__new__

    def new(cls: type, data: Tensor | None = None, requires_grad: bool = True) -> Tensor:
        return put(parameter(cls, data, requires_grad), is_there(data))

    with ExitStack() as patches:
        for name, value in {"is_available": True, "device_count": 1, "is_bf16_supported": True}.items():
            patches.enter_context(patch.object(torch.cuda, name, lambda *_, value=value, **__: value))
        patches.enter_context(patch.object(torch.accelerator, "is_available", lambda: False))  # no stream to be asked
        patches.enter_context(patch.object(Tensor, "pin_memory", lambda self: self, create=True))
        patches.enter_context(patch.object(torch, "autocast", lambda _, *a, **k: autocast("cpu", *a, **k)))
        patches.enter_context(patch.object(torch.nn.Parameter, "__new__", new))
        patches.enter_context(mode)
        yield mode.waits


@contextmanager
def steps_counted() -> Iterator[list[int]]:
    """Within, torch has a GPU; yields the number of waits up to the end of each step of an optimizer."""
    with pretended_gpu() as waits:
        counts: list[int] = []
        hook = register_optimizer_step_post_hook(lambda *_: counts.append(waits.total()))
        yield counts
        hook.remove()
