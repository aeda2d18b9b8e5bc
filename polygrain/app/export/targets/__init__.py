"""The formats of an exported model, a module each: how it is written, run, and loaded without this project."""

from pathlib import Path
from typing import Protocol

from torch.export import ExportedProgram

from polygrain.app.export.agreement import Run
from polygrain.app.export.targets import onnx, torch_export


class Target(Protocol):
    """`SNIPPET`: how a user loads it, in Markdown; its code makes `embeddings` of `images`."""

    FILE: str
    ABOUT: str
    LIBRARY: str
    PACKAGES: tuple[str, ...]
    SNIPPET: str

    def write(self, program: ExportedProgram, file: Path) -> None: ...

    def runner(self, file: Path) -> Run: ...


TARGETS: tuple[Target, ...] = (torch_export, onnx)  # type: ignore[assignment]  # modules, by their names
