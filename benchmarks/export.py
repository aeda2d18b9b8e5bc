"""What a model costs beside its bare encoder: as it is, as a program of torch.export, and in onnxruntime.

ViT-S/16 at 224 with three fused adaptor sets of width 48, random weights; or the model folder that is named, such as
`python -m benchmarks.export data/choice`. All run in one process with the same threads on the same float images. A
ratio of 0.8 says that it takes 1.25 times as long as the encoder.
"""

import sys
import tempfile
from pathlib import Path

import torch

from benchmarks.images import fused
from benchmarks.measure import FULL, compare
from polygrain.app.export.agreement import difference, onnx_runner, torch_runner
from polygrain.app.export.program import ONNX, TORCH, trace, write_onnx, write_torch
from polygrain.encoder import Model, load


def encoder_of(model: Model) -> Model:
    """The encoder at its own input, without adaptors, mirror image or last layer."""
    return model.without_adaptors().without_reduction().at_side(model.config.size, False)


if __name__ == "__main__":
    named = [word for word in sys.argv[1:] if not word.startswith("-")]
    model = load(named[0]) if named else fused(3, 48).cpu()
    encoder, threads = encoder_of(model), torch.get_num_threads()
    images = torch.rand(32 if FULL or named else 8, 3, model.config.size, model.config.size)
    what = named[0] if named else "fused ViT-S/16, N=3, D'=48"
    with tempfile.TemporaryDirectory() as folder:
        program = trace(model, uint8=False)
        write_torch(program, Path(folder, TORCH))
        write_onnx(program, Path(folder, ONNX))
        onnx = onnx_runner(Path(folder, ONNX), threads)
        runners = {"torch.export": torch_runner(Path(folder, TORCH)), "onnxruntime": onnx}

        def forward(network: Model) -> None:
            with torch.inference_mode():
                network(images)

        ways = {"the model": lambda: forward(model)}
        ways |= {name: lambda run=run: run(images.numpy()) for name, run in runners.items()}
        facts = {name: {"differs_by": f"{difference(model, run, False):.1e}"} for name, run in runners.items()}
        for name, run in ways.items():
            compare(f"{what}, {len(images)} images, {name}", run, lambda: forward(encoder), 7 if FULL or named else 3,
                    peer="bare encoder", **facts.get(name, {}))  # fmt: skip
