"""A program of torch.export."""

import zipfile
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch.export import ExportedProgram

from polygrain.app.export.agreement import Run

FILE = "model.pt2"
ABOUT = "a program of `torch.export`: a zip of JSON and bare tensors, no pickle in it"
LIBRARY = "torch"
PACKAGES = ()
SNIPPET = """\
2.11 or newer. Load only a `.pt2` whose maker you trust: this one has no pickle, but `torch.export.load` would read one.

```python
import torch

model = torch.export.load("model.pt2").module()
with torch.inference_mode():
    embeddings = [model(torch.from_numpy(image)).numpy()$one for image in images]
embeddings = np.stack(embeddings)$unit
```
"""


def write(program: ExportedProgram, file: Path) -> None:
    """A zip of JSON and bare tensors."""
    program.example_inputs = None  # torch would store these as a pickle
    torch.export.save(program, file)
    require_no_pickle(file)


def require_no_pickle(file: Path) -> None:
    """ValueError where a member of the zip is a pickle, or the list of tensors names one."""
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            content = archive.read(name) if name.endswith((".pt", ".json")) else b""
            if (name.endswith(".pt") and content) or b'"use_pickle": true' in content:
                raise ValueError(f"torch {torch.__version__} put a pickle into {file.name} ({name}); export stopped")


def runner(file: Path) -> Run:
    """Runs the program from its file."""
    program = torch.export.load(file).module()

    def run(batch: np.ndarray) -> Float[np.ndarray, "batch dim"]:
        with torch.inference_mode():
            return program(torch.from_numpy(batch)).numpy()

    return run
