"""What is known of published weights beside their values: their input, and how their classifier is called.

timm knows it by the full name of the weights, such as `mobilenetv2_100.ra_in1k`; a folder in the layout of timm's hub,
`config.json` beside `model.safetensors`, says it itself.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import timm
from pydantic import BaseModel, ConfigDict, Field

from polygrain.config.schema import Deviation, Mean
from polygrain.encoder.arguments import Arguments
from polygrain.encoder.config import Interpolation, Pixels, read_own
from polygrain.encoder.networks import Architecture
from polygrain.store.reading import reading

WEIGHTS = "model.safetensors"
HUB = "give a folder with timm's config.json and model.safetensors, or a model folder of this project"
Short = Annotated[str, Field(max_length=200)]


class Published(BaseModel):
    """The part of timm's `pretrained_cfg` that is used here; what else it holds is left alone."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)
    input_size: tuple[Literal[3], Pixels, Pixels] = Field(description="channels and sides of the input, px")
    mean: tuple[Mean, Mean, Mean] = Field(description="of the input's channels, in 0..1")
    std: tuple[Deviation, Deviation, Deviation] = Field(description="of the input's channels, in 0..1")
    interpolation: Interpolation = Field("bicubic", description="with which images were scaled to the input")
    classifier: Short | tuple[Short, ...] | None = Field(None, description="names of the classifiers' modules")
    license: Short | None = Field(None, description="of the weights, as timm has it")


class Hub(BaseModel):
    """The config.json of timm's hub layout; ours has other keys."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)
    architecture: Architecture = Field(description="a timm name")
    model_args: Arguments = Field({}, description="arguments of its constructor")
    pretrained_cfg: Published


def published(architecture: str) -> Published:
    """What timm knows of these weights; of those it takes itself where the name has no tag."""
    return Published.model_validate(asdict(timm.get_pretrained_cfg(architecture, allow_unregistered=True)))


def is_hub(folder: Path) -> bool:
    """Whether the folder's config.json is one of timm's hub, or of another library; ours has neither key.

    ValueError where it is missing or damaged.
    """
    file = folder / "config.json"
    with reading(file, HUB):
        said = json.loads(read_own(file))
        return not isinstance(said, dict) or bool({"pretrained_cfg", "model_type"} & set(said))


def read_hub(folder: Path) -> Hub:
    """The config of a folder in timm's hub layout; ValueError says what is wrong with it."""
    file = folder / "config.json"
    with reading(file, HUB):
        text = read_own(file)
        if "model_type" in json.loads(text):
            raise ValueError("it is of the library transformers: take the same network from timm")
        return Hub.model_validate_json(text)
