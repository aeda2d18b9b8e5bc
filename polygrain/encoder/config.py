"""`config.json`: all that is needed to build a model again, but for its weights."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from polygrain.config.schema import Deviation, Mean, Name, Width
from polygrain.store.reading import reading

Fusion = Literal["average", "attention"]
Interpolation = Literal["bicubic", "bilinear"]
Pixels = Annotated[int, Field(ge=1, le=4096, strict=True)]  # a config may be a stranger's
# A user's own folder should not be deleted.
WHOLE_FOLDER = (
    "run the stage that writes it, or wait for it, or name a folder with a model's config.json and weights.safetensors"
)
# Arguments of timm's create_model that read files, fetch weights or give something else than a network.
NOT_FOR_CONSTRUCTORS = {
    *("pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path", "cache_dir"),
    *("features_only", "scriptable", "exportable", "no_jit"),
}


def require_safe(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as they are; ValueError for one that is not the network's constructor's."""
    if wrong := sorted(NOT_FOR_CONSTRUCTORS & set(arguments)):
        raise ValueError(f"{wrong[0]!r} cannot be set: give arguments of the network's constructor alone")
    return dict(arguments)


Arguments = Annotated[dict[str, int | float | bool | str], AfterValidator(require_safe)]


class Attention(BaseModel):
    """Details of the attention that the paper leaves open; the defaults are Eq. 3 with the mean that its text names."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    class_token: bool = Field(True, description="class (and register) tokens take part in the pooling, as Algorithm 1")
    pooling: Literal["mean", "sum"] = Field(
        "mean", description="of tokens; the sum, as printed, scales logits by T squared"
    )
    scaled: bool = Field(True, description="divide by sqrt(D), as Eq. 3 and unlike Algorithm 1")
    bias: bool = Field(False, description="Q and K with bias; the paper says linear")


class AdaptorConfig(BaseModel):
    """The adaptor sets after every block, and their fusion."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    names: list[Name] = Field(
        min_length=1, max_length=256, description="of the adaptor sets, in the order of their weights"
    )
    width: Width = Field(description="hidden units D' of each bottleneck")
    fusion: Fusion = Field(description="the sets' mean, or an attention that has learnt")
    attention: Attention = Field(Attention(), description="of the fusion `attention`")


class Config(BaseModel):
    """A timm architecture with its arguments, the input, the adaptors and the embedding."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    architecture: str = Field(max_length=200, description="a timm name")
    kwargs: Arguments = Field({}, description="further arguments of its constructor")
    size: Pixels = Field(description="side of the input, px")
    resize: Pixels = Field(
        description="side of the square, or shorter side of the rectangle, to which an image is scaled, px; its centre "
        "of `size` is the input"
    )
    shape: Literal["crop", "whole"] = Field(
        "crop", description="crop: the input is the centre square; whole: the whole image, unless it is nearly square"
    )
    scaled: Pixels | None = Field(
        None, description="shorter side to which the input is scaled for the network, px; null: it is taken as it is"
    )
    interpolation: Interpolation = Field("bicubic", description="of that scaling, with antialiasing")
    mirrored: bool = Field(False, description="the embedding is the mean of the input's and of its mirror image's")
    blocks: int = Field(
        1,
        ge=1,
        le=1000,
        strict=True,
        description="outputs that stand side by side in the embedding: of the last block, and of blocks before it",
    )
    mean: tuple[Mean, Mean, Mean] = Field(description="of the input's channels, in 0..1")
    std: tuple[Deviation, Deviation, Deviation] = Field(description="of the input's channels, in 0..1")
    adaptors: AdaptorConfig | None = Field(None, description="null for the plain encoder")
    reduced: int | None = Field(
        None, ge=1, description="dimensions of a linear reduction behind the encoder; null: none"
    )

    @property
    def side(self) -> int:
        """Side of the network's input, px; the shorter one of a rectangle."""
        return self.scaled or self.size


def read_config(folder: Path) -> Config:
    """The config of a model folder; ValueError names the file if it is missing, damaged or contradicts itself."""
    file = folder / "config.json"
    with reading(file, WHOLE_FOLDER):
        config = Config.model_validate_json(file.read_text(encoding="utf-8"))
        if config.resize < config.size:
            raise ValueError(f"resize is {config.resize}, smaller than size, {config.size}")
        return config


def write_config(config: Config, folder: Path) -> None:
    # Keys that came later are left out with their usual values, so that old models keep their bytes.
    usual = {"interpolation": "bicubic", "blocks": 1, "shape": "crop"}
    values = config.model_dump(mode="json")
    kept = {key: value for key, value in values.items() if key not in usual or value != usual[key]}
    (folder / "config.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
