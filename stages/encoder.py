"""The frozen encoder as files, whatever its source. After this stage nothing needs a network connection.

Reads   a model folder (the weights that ship) or one in the layout of timm's hub, a checkpoint (.safetensors, or
        .pth/.pt read without pickle), an installed package's weights, or nothing (timm fetches the named
        architecture's published weights once).
Writes  weights.safetensors, config.json
"""

from collections.abc import Mapping
from pathlib import Path

from pydantic import Field, model_validator

from polygrain.config import schema
from polygrain.encoder.config import Config
from polygrain.encoder.model import Model, save
from polygrain.encoder.origin import Origin, require_fit
from polygrain.runner import command, outputs
from polygrain.store.rectangle import Shape


class Params(Origin):
    resize: schema.Side = Field(description="shorter side of an image before the centre crop, px: images.side")
    crop: schema.Side | None = Field(
        description="side of the centre crop, px, scaled to the encoder's input; null: the input's own side"
    )

    @model_validator(mode="after")
    def sees_no_more_than_there_is(self) -> "Params":
        for name, value in (("crop", self.crop), ("side", None if self.crop else self.side)):
            if value is not None and value > self.resize:
                raise ValueError(f"{name} {value} is larger than resize {self.resize}")
        return self

    def agrees(self, sections: Mapping[str, schema.Section], folder: Path) -> None:
        """ValueError where the encoder does not fit the stored images, or its folder's config; paths are seen from
        `folder`. What a stage is still to make is not asked."""
        if "images" in sections and sections["images"].side != self.resize:
            raise ValueError(
                f"images.side is {sections['images'].side} and encoder.resize is {self.resize}: the encoder sees what "
                "is stored, so give both the same value"
            )
        place = folder / self.path
        if self.source == "folder" and place.exists():
            config = self.describe(place)
            require_seen(config, self, place)
            require_last_block(config, place)
            require_fit(config)


def require_seen(config: Config, params: Params, path: Path) -> None:
    """ValueError for stored images that are smaller than the encoder's input."""
    if params.resize < (params.crop or config.size):
        raise ValueError(f"encoder.resize is {params.resize}; the encoder in {path} needs {config.size} or more")


def require_last_block(config: Config, path: Path) -> None:
    """ValueError for a model of several blocks: adaptors learn from the last block's output."""
    if config.blocks > 1:
        raise ValueError(
            f"config.json in {path} has blocks {config.blocks}: it is a chosen model; give the encoder "
            "that it was made of, which embeds by its last block alone"
        )


def crop(model: Model, params: Params, shape: Shape) -> Model:
    """The model for the stored images: `size` is the centre that it sees, scaled to the network's own side.

    In images larger than the network's input, a careful look sees more than a plain one.
    """
    side, size = model.config.side, params.crop or model.config.size
    changes = {"resize": params.resize, "size": size, "scaled": None if size == side else side}
    changes["shape"] = "whole" if shape == "whole" else "crop"
    model.config = model.config.model_copy(update=changes)
    return model


def build(params: Params, path: Path, shape: Shape = "crop") -> Model:
    """The encoder with its weights, for the stored images."""
    model = params.build(path)
    require_seen(model.config, params, path)
    require_last_block(model.config, path)
    return crop(model, params, shape)


def main(path: Path, output: Path, *, params: Params, shape: Shape) -> str:
    model = build(params, path, shape).float()
    with outputs.folder(output) as folder:
        save(model, folder)
    count = sum(parameter.numel() for parameter in model.parameters())
    return (
        f"{model.config.architecture}, {count:,} parameters, {model.dim}-D embeddings of {model.config.side} px images"
    )


if __name__ == "__main__":
    command.run(main, Params, shape="images.shape")
