"""What every section of params.yaml obeys."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError


class Section(BaseModel):
    """A section of params.yaml: no unknown keys, no conversion of types, no infinite numbers, no defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


# A name stands in a path, in a stage's name and in a command as it is.
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=100)]
Text = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00-\x1f\x7f]+$")]  # one line

Epochs = Annotated[int, Field(ge=1)]
Warmup = Annotated[float, Field(ge=0)]  # epochs
Steps = Annotated[int, Field(ge=1)]
BatchSize = Annotated[int, Field(ge=1)]
Width = Annotated[int, Field(ge=1)]  # units of a layer
Side = Annotated[int, Field(ge=8, le=4096)]  # px
Count = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0, le=1000)]  # the largest published one here is 30, of a linear probe
Decay = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0)]  # of a part of a loss
Factor = Annotated[float, Field(gt=0)]  # on logits or on a loss
Temperature = Annotated[float, Field(ge=0.001, le=100)]  # of cosines: below it is a maximum, at 100 all count the same
Share = Annotated[float, Field(gt=0, le=1)]
# Of a channel in 0..1. The input is divided by the deviation.
Mean = Annotated[float, Field(ge=0, le=1, strict=True)]
Deviation = Annotated[float, Field(ge=0.001, le=1, strict=True)]


def check_values(values: Mapping[str, object], kinds: Mapping[str, Any], where: str = "") -> None:
    """ValueError, which begins with `where`, for a value whose name has no kind here, or that is not of its kind."""
    for name, value in values.items():
        if name not in kinds:
            raise ValueError(f"{where}{name!r} cannot be set; known are {', '.join(sorted(kinds)) or 'none'}")
        try:
            TypeAdapter(kinds[name], config=ConfigDict(strict=True, allow_inf_nan=False)).validate_python(value)
        except ValidationError as error:
            raise ValueError(f"{where}{name} is {value!r}: {error.errors()[0]['msg']}") from None
