"""What a feature extractor is: a network of a library, its input, and the layers to read."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from stages.core.encoder.config import Config


class Extractor(BaseModel):
    """A network by its library's name, the input it wants, and the layers to read.

    `library: encoder` is a model folder of this project, which says itself what it is and wants.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    library: Literal["encoder", "timm", "torchvision"] = Field(
        description="where the network is from; encoder: a model folder, which says the rest itself"
    )
    network: str | None = Field(description="its name in the library; null for encoder")
    kwargs: dict[str, int | float | bool | str] = Field(description="further arguments of the network's constructor")
    side: int | None = Field(ge=8, description="side of the input, px; null for encoder")
    mean: tuple[float, float, float] | None = Field(description="of the input's channels, in 0..1; null for encoder")
    std: tuple[float, float, float] | None = Field(description="of the input's channels, in 0..1; null for encoder")
    layers: list[str] = Field(min_length=1, description="modules of the network whose outputs lie side by side")
    encoder: Config | None = Field(None, description="filled in from the model folder; not to be given")

    @model_validator(mode="after")
    def says_what_it_needs(self) -> "Extractor":
        given = [value is not None for value in (self.network, self.side, self.mean, self.std)]
        if self.library == "encoder" and (any(given) or self.kwargs):
            raise ValueError("library: encoder takes network, side, mean and std from the model folder: give null")
        if self.library != "encoder" and not all(given):
            raise ValueError(f"library: {self.library} needs network, side, mean and std")
        return self
