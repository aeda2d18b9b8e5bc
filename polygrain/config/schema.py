"""The rules of every section of params.yaml."""

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

Variant = TypeVar("Variant", bound=Callable[..., Any])


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


class Variants(dict[str, Variant]):
    """The variants of one kind by name. The signature of each names its values and annotates their bounds.

    Not values are its first `given` parameters, and those with a default.
    """

    def __init__(self, kind: str, given: int) -> None:
        super().__init__()
        self.kind, self.given = kind, given

    def __call__(self, variant: Variant) -> Variant:
        """Adds a function by its name, as a decorator."""
        self[variant.__name__] = variant
        return variant

    def checked(self, name: str, values: Mapping[str, object]) -> Variant:
        """The variant. ValueError for an unknown one, for values that it does not take, and for one out of bounds."""
        if name not in self:
            raise ValueError(f"no {self.kind} {name!r}; known: {', '.join(sorted(self))}")
        parameters = [*inspect.signature(self[name]).parameters.values()][self.given :]
        taken = {one.name: one.annotation for one in parameters if one.default is one.empty}
        if taken.keys() != values.keys():
            words = ", ".join(taken) or "no values", ", ".join(values) or "none"
            raise ValueError(f"{self.kind} {name!r} takes {words[0]}; given: {words[1]}")
        for key, value in values.items():
            try:
                TypeAdapter(taken[key], config=Section.model_config).validate_python(value)
            except ValidationError as error:
                raise ValueError(f"{self.kind} {name!r}: {key} is {value!r}: {error.errors()[0]['msg']}") from None
        return self[name]
