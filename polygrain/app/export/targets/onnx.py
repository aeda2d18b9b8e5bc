"""A file of ONNX."""

import warnings
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from polygrain.app.export.agreement import Run
from polygrain.app.export.program import FREE, INPUT, has_free_sides
from polygrain.compute.errors import first_line

FILE = "model.onnx"
ABOUT = "the same for ONNX runtimes, any number of images of one size at a time"
LIBRARY = "onnxruntime"
PACKAGES = ("onnx", "onnxruntime", "onnxscript")
SNIPPET = """\
```python
import onnxruntime

session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
embeddings = [session.run(None, {"images": image})[0]$one for image in images]
embeddings = np.stack(embeddings)$unit
```
"""


def write(program: ExportedProgram, file: Path) -> None:
    """Weights and graph in one file; beyond ONNX's 2 GB the weights are in a second file."""
    axes = {0: "batch"} | (FREE if has_free_sides(program) else {})
    names: dict[str, Any] = {"input_names": [INPUT], "output_names": ["embeddings"], "dynamic_shapes": {INPUT: axes}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns about its own libraries
        try:
            exported: Any = torch.onnx.export(program, dynamo=True, verbose=False, **names)
            exported.save(file)
        except torch.onnx.errors.OnnxExporterError as error:
            raise ValueError(f"ONNX has no operator for a part of this network ({first_line(error)})") from error


def runner(file: Path) -> Run:
    """Runs the file by onnxruntime on the CPU."""
    import onnxruntime

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    return lambda batch: session.run(None, {INPUT: batch})[0]
