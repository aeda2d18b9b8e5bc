"""A model as one graph of plain operators, images in, embeddings out: for torch.export and for ONNX."""

import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from polygrain.compute.errors import first_line
from polygrain.encoder import Model
from polygrain.encoder.config import Interpolation
from polygrain.encoder.prepare import settle

TORCH, ONNX = "model.pt2", "model.onnx"
INPUT, OUTPUT = "images", "embeddings"


class Program(nn.Module):
    """The model's forward, its input scaled by two matrices, since ONNX has no scaling with antialiasing, and the mean
    of a collection taken from its embeddings."""

    def __init__(self, model: Model, mean: Sequence[float] = ()) -> None:
        super().__init__()
        self.register_buffer("collection", torch.tensor(mean) if mean else None)
        config = model.config
        side = config.side
        self.register_buffer("scaling", scaling(config.size, side, config.interpolation) if config.scaled else None)
        self.model = Model(config.model_copy(update={"size": side, "resize": side, "scaled": None}))
        self.model.load_state_dict(model.state_dict())
        for copy, layer in zip(self.model.adaptors, model.adaptors, strict=True):
            copy.masked.copy_(layer.masked)
        if config.kwargs.get("img_size", side) != side and hasattr(self.model.backbone, "set_input_size"):
            self.model.backbone.set_input_size(img_size=side)  # position embeddings scaled once, not in every pass
        settle(self.model)
        self.requires_grad_(False).eval()

    def forward(self, images: Num[Tensor, "batch 3 y x"]) -> Float[Tensor, "batch dim"]:
        x = images.float() / 255 if images.dtype == torch.uint8 else images
        if self.scaling is not None:
            x = (self.scaling @ x @ self.scaling.T).clamp(0, 1)
        embeddings = self.model(x)
        if self.collection is None:
            return embeddings
        return nn.functional.normalize(embeddings - self.collection, dim=1)


def scaling(size: int, side: int, mode: Interpolation = "bicubic") -> Float[Tensor, "side size"]:
    """The matrix that scales a column of `size` pixels to `side`, as the model scales its input."""
    columns = torch.eye(size)[None, None]
    return nn.functional.interpolate(columns, (side, size), mode=mode, antialias=True, align_corners=False)[0, 0]


def trace(model: Model, uint8: bool, mean: Sequence[float] = ()) -> ExportedProgram:
    """The program of a model for any number of images: uint8, or float32 in 0..1; `mean` of their collection."""
    example = torch.zeros(2, 3, model.config.size, model.config.size, dtype=torch.uint8 if uint8 else torch.float32)
    try:
        return torch.export.export(Program(model, mean), (example,), dynamic_shapes=({0: Dim("batch")},))
    except Exception as error:  # torch raises a dozen kinds, and all mean that it cannot export this network
        raise ValueError(
            f"torch cannot export {model.config.architecture!r} ({first_line(error)}); `polygrain embed` still works"
        ) from error


def write_torch(program: ExportedProgram, file: Path) -> None:
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


def write_onnx(program: ExportedProgram, file: Path) -> None:
    """Weights and graph in one file; beyond ONNX's 2 GB the weights are in a second file."""
    names = {"input_names": [INPUT], "output_names": [OUTPUT], "dynamic_shapes": {INPUT: {0: "batch"}}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns about its own libraries
        try:
            torch.onnx.export(program, dynamo=True, verbose=False, **names).save(file)
        except torch.onnx.errors.OnnxExporterError as error:
            raise ValueError(f"ONNX has no operator for a part of this network ({first_line(error)})") from error
