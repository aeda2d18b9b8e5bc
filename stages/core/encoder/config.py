"""What it takes to build a model again: its `config.json`."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from stages.core.store.reading import reading

Fusion = Literal["average", "attention"]
# A model's folder may be of a stage or a user's own, which nobody should be told to delete.
WHOLE_FOLDER = "run the stage that writes it, or name a folder with a model's config.json and weights.safetensors"


class Attention(BaseModel):
    """What the paper leaves open about its attention; the defaults are Eq. 3 with the mean that its text asks for."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    class_token: bool = Field(True, description="class (and register) tokens take part in the pooling, as Algorithm 1")
    pooling: Literal["mean", "sum"] = Field("mean", description="of tokens; the printed sum scales logits by T squared")
    scaled: bool = Field(True, description="divide by sqrt(D), as Eq. 3 and unlike Algorithm 1")
    bias: bool = Field(False, description="Q and K with bias; the paper says linear")


class AdaptorConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    names: list[str] = Field(min_length=1)
    width: int = Field(ge=1)
    fusion: Fusion
    attention: Attention = Attention()


class Config(BaseModel):
    """What it takes to build the model again: a timm architecture with its arguments, the input, the adaptors."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    architecture: str
    kwargs: dict[str, int | float | bool | str] = {}
    size: int = Field(ge=1, description="side of the input")
    resize: int = Field(
        ge=1, description="side of the square an image is brought to first; the centre of it is the input"
    )
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    adaptors: AdaptorConfig | None = None
    reduced: int | None = Field(None, ge=1, description="dimensions of a linear reduction behind the encoder, if any")


def read_config(folder: Path) -> Config:
    file = folder / "config.json"
    with reading(file, WHOLE_FOLDER):
        return Config.model_validate_json(file.read_text(encoding="utf-8"))
