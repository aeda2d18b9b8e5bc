"""A feature extractor: a network of a library, its input, and the layers to read."""

import difflib
from typing import Literal

import torchvision
from pydantic import BaseModel, ConfigDict, Field, model_validator

from polygrain.config.schema import Deviation, Mean, Text
from polygrain.encoder import networks
from polygrain.encoder.config import Arguments, Config


class Extractor(BaseModel):
    """A network by its library's name, the input it wants, and the layers to read.

    `library: encoder` is a model folder of this project, which says itself what it is and wants.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    library: Literal["encoder", "timm", "torchvision", "own"] = Field(
        description="where the network is from; encoder: a model folder, which says the rest; own: FaceNet's"
    )
    network: Text | None = Field(description="its name in the library; null for encoder")
    kwargs: Arguments = Field(description="further arguments of the network's constructor")
    side: int | None = Field(ge=8, strict=True, description="side of the input, px; null for encoder")
    mean: tuple[Mean, Mean, Mean] | None = Field(description="of the input's channels, in 0..1; null for encoder")
    std: tuple[Deviation, Deviation, Deviation] | None = Field(
        description="of the input's channels, in 0..1; null for encoder"
    )
    layers: list[Text] = Field(
        min_length=1, max_length=1000, description="modules of the network whose outputs lie side by side"
    )
    encoder: Config | None = Field(None, description="filled in from the model folder; not to be given")

    @model_validator(mode="after")
    def says_what_it_needs(self) -> "Extractor":
        given = [value is not None for value in (self.network, self.side, self.mean, self.std)]
        if self.library == "encoder" and (any(given) or self.kwargs):
            raise ValueError("library: encoder takes network, side, mean and std from the model folder: give null")
        if self.library != "encoder" and not all(given):
            raise ValueError(f"library: {self.library} needs network, side, mean and std")
        if self.library == "own" and self.network != "inception_resnet_v1":
            raise ValueError(f"library: own has inception_resnet_v1 alone, not {self.network!r}")
        if self.library == "timm":
            networks.require_known(self.name)
        if self.library == "torchvision" and self.network not in (names := classifiers()):
            similar = ", ".join(difflib.get_close_matches(self.name, names, 5, 0))
            raise ValueError(f"torchvision does not know {self.network!r}; similar names: {similar}")
        return self

    @property
    def name(self) -> str:
        """The network's name in its library; empty for that of a model folder."""
        return self.network or ""


def classifiers() -> list[str]:
    """torchvision's networks that see whole images: the others fetch the weights of their backbone unasked."""
    return torchvision.models.list_models(module=torchvision.models)
