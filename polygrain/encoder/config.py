"""What it takes to build a model again: its `config.json`."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from polygrain.config.schema import Deviation, Mean, Name, Width
from polygrain.encoder.arguments import Arguments
from polygrain.store.reading import reading
from polygrain.store.untrusted import read_text, require_plain

Fusion = Literal["average", "attention"]
Interpolation = Literal["bicubic", "bilinear"]
Pixels = Annotated[int, Field(ge=1, le=4096, strict=True)]  # a config may be a stranger's
# A model's folder may be of a stage or a user's own, which nobody should be told to delete.
WHOLE_FOLDER = "run the stage that writes it, or name a folder with a model's config.json and weights.safetensors"


class Attention(BaseModel):
    """What the paper leaves open about its attention; the defaults are Eq. 3 with the mean that its text asks for."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    class_token: bool = Field(True, description="class (and register) tokens take part in the pooling, as Algorithm 1")
    pooling: Literal["mean", "sum"] = Field(
        "mean", description="of tokens; the sum, as printed, scales logits by T squared"
    )
    scaled: bool = Field(True, description="divide by sqrt(D), as Eq. 3 and unlike Algorithm 1")
    bias: bool = Field(False, description="Q and K with bias; the paper says linear")


class AdaptorConfig(BaseModel):
    """The adaptor sets behind every block, and how they are fused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    names: list[Name] = Field(
        min_length=1, max_length=256, description="of the adaptor sets, in the order of their weights"
    )
    width: Width = Field(description="hidden units D' of each bottleneck")
    fusion: Fusion = Field(description="the sets' mean, or an attention that has learnt")
    attention: Attention = Field(Attention(), description="of the fusion `attention`")


class Config(BaseModel):
    """What it takes to build the model again: a timm architecture with its arguments, the input, the adaptors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    architecture: str = Field(max_length=200, description="a timm name")
    kwargs: Arguments = Field({}, description="further arguments of its constructor")
    size: Pixels = Field(description="side of the input, px")
    resize: Pixels = Field(
        description="side of the square an image is brought to first, px; the centre of it is the input",
    )
    scaled: Pixels | None = Field(
        None,
        description="side to which the input is scaled for the network, px; null: it is taken as it is",
    )
    interpolation: Interpolation = Field("bicubic", description="of that scaling, with antialiasing")
    mirrored: bool = Field(False, description="the embedding is the mean of the input's and of its mirror image's")
    blocks: int = Field(
        1,
        ge=1,
        le=1000,
        strict=True,
        description="how many outputs, the last one's and those of blocks before it, are the embedding, side by side",
    )
    mean: tuple[Mean, Mean, Mean] = Field(description="of the input's channels, in 0..1")
    std: tuple[Deviation, Deviation, Deviation] = Field(description="of the input's channels, in 0..1")
    adaptors: AdaptorConfig | None = Field(None, description="null for the plain encoder")
    reduced: int | None = Field(
        None, ge=1, description="dimensions of a linear reduction behind the encoder; null: none"
    )

    @property
    def side(self) -> int:
        """Side of what the network itself sees, px."""
        return self.scaled or self.size


def read_config(folder: Path) -> Config:
    """The config of a model's folder; ValueError names the file where it is missing, damaged or senseless."""
    file = folder / "config.json"
    with reading(file, WHOLE_FOLDER):
        config = Config.model_validate_json(read_own(file))
        if config.resize < config.size:
            raise ValueError(f"resize is {config.resize}, smaller than size, {config.size}")
        return config


def read_own(file: Path) -> str:
    """The text of a file that is to lie in a model's folder itself."""
    require_plain(file)
    return read_text(file)
