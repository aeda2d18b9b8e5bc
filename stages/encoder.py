"""The frozen encoder: weights and config as files, wherever they come from. After this stage nothing needs a network.

Reads   a model folder (the weights that ship), a weights file (.safetensors, or .pth/.pt read without pickle), or
        nothing (timm fetches the named architecture's published weights once).
Writes  weights.safetensors, config.json
"""

import logging
from pathlib import Path
from typing import Literal

import timm
import torch
from pydantic import Field, model_validator
from timm.models.vision_transformer import VisionTransformer, checkpoint_filter_fn
from torch import Tensor

from stages.core.encoder import networks
from stages.core.encoder.arguments import Arguments
from stages.core.encoder.config import Config
from stages.core.encoder.model import Model, load, save
from stages.core.encoder.weights import fit_tensors
from stages.core.runner import command, outputs, schema
from stages.core.store.reading import reading
from stages.core.store.tensors import read_tensors, require_finite
from stages.core.store.untrusted import require_regular

log = logging.getLogger(__name__)
READABLE = "give a safetensors file or plain tensors, all values finite"


class Params(schema.Section):
    source: Literal["folder", "timm", "file"] = Field(
        description="a model folder, timm's published weights (fetched once), or a file of weights"
    )
    path: schema.Text = Field(description="the folder or file; for timm the lock file that pins timm's version")
    architecture: networks.Architecture | None = Field(
        description="a timm name; null where the folder's config says it"
    )
    side: schema.Side | None = Field(
        description="side of the encoder's input, px; null where the folder's config says it"
    )
    resize: schema.Side = Field(description="side of the square before the centre crop, px: images.side")
    crop: schema.Side | None = Field(
        description="side of the centre crop, px, scaled to the encoder's input; null: the input's own side"
    )
    kwargs: Arguments = Field(
        description="arguments of timm's constructor (timm and file), such as pad_type: same for weights of TensorFlow"
    )
    mean: list[schema.Mean] | None = Field(
        min_length=3, max_length=3, description="of the input's channels, in 0..1; null: as timm has it"
    )
    std: list[schema.Deviation] | None = Field(
        min_length=3, max_length=3, description="of the input's channels, in 0..1; null: as timm has it"
    )

    @model_validator(mode="after")
    def names_what_it_needs(self) -> "Params":
        values, folder = (self.architecture, self.side), self.source == "folder"
        if any((value is None) != folder for value in values):
            wanted = "null for source: folder" if folder else f"given for source: {self.source}"
            raise ValueError(f"architecture and side must be {wanted}, met {self.architecture!r} and {self.side!r}")
        if folder and (self.kwargs or self.mean or self.std):
            raise ValueError("kwargs, mean and std are in the config.json of a folder: give {}, null and null")
        for name, value in (("crop", self.crop), ("side", None if self.crop else self.side)):
            if value is not None and value > self.resize:
                raise ValueError(f"{name} {value} is larger than resize {self.resize}")
        if self.architecture is not None:
            networks.require_buildable(self.architecture, self.kwargs)
        return self


def classifiers(architecture: str) -> tuple[str, ...]:
    """What timm calls the architecture's classifiers, as beginnings of tensor names."""
    named = getattr(timm.get_pretrained_cfg(architecture, allow_unregistered=True), "classifier", None) or ()
    return tuple(f"{name}." for name in ("head", "fc", *((named,) if isinstance(named, str) else named)))


def read_backbone(file: Path, architecture: str) -> dict[str, Tensor]:
    """The backbone's tensors in a checkpoint: wrappers such as `teacher` or `state_dict` opened, heads dropped."""
    with reading(file, READABLE):
        require_regular(file.stat().st_mode)
    if file.suffix == ".safetensors":
        tensors = read_tensors(file, READABLE)
    else:
        try:
            tensors = torch.load(file, "cpu", weights_only=True)
        except Exception as error:  # it raises many types; whatever it was, this file is what must change
            raise ValueError(f"{file} cannot be read as weights ({error}); {READABLE}") from error
    for wrapper in ("teacher", "state_dict", "model"):
        if isinstance(tensors, dict) and isinstance(tensors.get(wrapper), dict):
            tensors = tensors[wrapper]
    if not isinstance(tensors, dict) or not all(isinstance(value, Tensor) for value in tensors.values()):
        raise ValueError(f"{file} holds no table of tensors; give the weights alone")
    for prefix in ("module.", "backbone.", "module.backbone."):
        if any(name.startswith(prefix + "blocks.") for name in tensors):
            # What lies outside the backbone (a projection head) goes with the prefix.
            tensors = {n.removeprefix(prefix): value for n, value in tensors.items() if n.startswith(prefix)}
    backbone = {name: value for name, value in tensors.items() if not name.startswith(classifiers(architecture))}
    with reading(file, READABLE):
        require_finite(backbone)
    return backbone


def describe(params: Params) -> Config:
    """The config of a timm architecture: its own normalisation, our sizes."""
    known = timm.get_pretrained_cfg(params.architecture, allow_unregistered=True)
    return Config(
        architecture=params.architecture,
        # A CNN takes any size; a ViT is built for one.
        kwargs=({"img_size": params.side} if known.fixed_input_size else {}) | params.kwargs,
        size=params.side,
        resize=params.resize,
        mean=tuple(params.mean or known.mean),
        std=tuple(params.std or known.std),
    )


def crop(model: Model, params: Params) -> Model:
    """The model for the squares that are stored: `size` is what it sees of them, scaled to the network's own side.

    Stored larger than the network's input, they let a careful look see more than the plain one.
    """
    side, size = model.config.side, params.crop or model.config.size
    changes = {"resize": params.resize, "size": size, "scaled": None if size == side else side}
    model.config = model.config.model_copy(update=changes)
    return model


def build(params: Params, path: Path) -> Model:
    """The encoder with its weights, from any of the three sources."""
    if params.source == "folder":
        model = load(path)
        if params.resize < (params.crop or model.config.size):
            raise ValueError(
                f"encoder.resize is {params.resize}; the encoder in {path} needs {model.config.size} or more"
            )
        return crop(model, params)
    model = Model(describe(params))
    if params.source == "timm":
        log.info("fetching the weights of %s", params.architecture)
        published = timm.create_model(params.architecture, pretrained=True, num_classes=0, **model.config.kwargs)
        fit_tensors(model.backbone, published.state_dict(), params.architecture)
    else:
        tensors = read_backbone(path, params.architecture)
        if isinstance(model.backbone, VisionTransformer):
            tensors = checkpoint_filter_fn(tensors, model.backbone)
        fit_tensors(model.backbone, tensors, str(path))
    return crop(model, params)


def main(path: Path, output: Path, *, params: Params) -> str:
    model = build(params, path).float()
    with outputs.folder(output) as folder:
        save(model, folder)
    count = sum(parameter.numel() for parameter in model.parameters())
    return (
        f"{model.config.architecture}, {count:,} parameters, {model.dim}-D embeddings of {model.config.side} px images"
    )


if __name__ == "__main__":
    command.run(main, Params)
