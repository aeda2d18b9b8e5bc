"""A fused model of 8 adaptor sets of width 64 against its bare backbone, ViT-S/16 at 224: time, activation memory."""

import torch
from torch import nn

from benchmarks.images import build
from benchmarks.measure import FULL, compare, report
from polygrain.compute import device
from polygrain.encoder.adaptors import Adaptors, fuse
from polygrain.encoder.config import AdaptorConfig
from polygrain.encoder.model import Model


def fused(count: int, width: int) -> Model:
    model = build()
    sets = [[Adaptors(model.dim, width, 1, "average") for _ in model.backbone.blocks] for _ in range(count)]
    for parameter in nn.ModuleList(layer for layers in sets for layer in layers).parameters():
        parameter.data.normal_(0, 0.02)
    names = [f"k{i}" for i in range(count)]
    config = AdaptorConfig(names=names, width=width, fusion="attention")
    model.insert(fuse(sets, "attention", torch.Generator().manual_seed(0)), config)
    return model.requires_grad_(False).eval().to(device.best())


def peak(model: Model, images: torch.Tensor) -> int:
    """The most bytes that live at once in a forward pass, the weights and the batch aside."""
    with torch.inference_mode():
        if images.is_cuda:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            model(images)
            return torch.cuda.max_memory_allocated() - before
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            model(images)
    events = sorted((e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"),
                    key=lambda e: e.start_ns())  # fmt: skip
    live = most = 0
    for event in events:
        live += event.nbytes()
        most = max(most, live)
    return most


if __name__ == "__main__":
    bare, wide = build(), fused(8, 64)
    images = torch.rand(64 if FULL else 8, 3, 224, 224, device=device.best())
    memory = peak(wide, images) / peak(bare, images)
    for precision in ("float32", "bfloat16") if device.has_bfloat16(images.device) else ("float32",):

        def run(model: Model, precision=precision) -> None:
            with torch.inference_mode(), device.autocast(images.device, precision):
                model(images)
            if images.is_cuda:
                torch.cuda.synchronize()

        # The claim is how much longer the fused model takes: 1 / ratio.
        rounds = 3 if FULL else 2
        compare(f"fused forward, N=8, D'=64, ViT-S/16, {precision}", lambda: run(wide), lambda: run(bare), rounds,
                peer="bare backbone")  # fmt: skip
    report("activation memory of the fused forward, times the bare one's", memory, None, unit="times, not seconds")
