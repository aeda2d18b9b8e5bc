"""What every section of params.yaml obeys."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError


class Section(BaseModel):
    """A section of params.yaml: unknown keys are refused, types not bent, numbers finite, and nothing has a default."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=100)]
# What is no name of ours: a path, a class, a layer of a network. A line of visible text, for it is shown and compared.
Text = Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=r"^[^\x00-\x1f\x7f]+$")]

# Upper bounds. They lie far above the largest published setting of anything here, and stop the slip of the pen that
# would fill the memory or never end: a thousand times 200,000 steps or 1,000 epochs, ten times a batch of 8,192.
MOST_EPOCHS = 1_000_000
MOST_STEPS = 200_000_000
MOST_BATCH = 2**17
MOST_WIDTH = 2**17  # units of a layer; half of it is the widest projector of any published head
MOST_SIDE = 4096  # px

Epochs = Annotated[int, Field(ge=1, le=MOST_EPOCHS)]
Warmup = Annotated[float, Field(ge=0, le=MOST_EPOCHS)]
Steps = Annotated[int, Field(ge=1, le=MOST_STEPS)]
BatchSize = Annotated[int, Field(ge=1, le=MOST_BATCH)]
Width = Annotated[int, Field(ge=1, le=MOST_WIDTH)]
Side = Annotated[int, Field(ge=8, le=MOST_SIDE)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]  # of things that are looked at one by one
# Beyond it no optimizer here converges: the largest published one is 30, of a linear probe.
Rate = Annotated[float, Field(gt=0, le=1000)]
Decay = Annotated[float, Field(ge=0, le=1)]  # 1 times a rate of 1 leaves nothing of a weight after one step
Weight = Annotated[float, Field(ge=0, le=1e6)]  # of a part of a loss
Factor = Annotated[float, Field(gt=0, le=1e6)]  # on logits or on a loss
# Of cosines in a softmax: below 0.001 it is a maximum, at 100 all count the same.
Temperature = Annotated[float, Field(ge=0.001, le=100)]
Share = Annotated[float, Field(gt=0, le=1)]
# Of a channel in 0..1. The input is divided by the deviation.
Mean = Annotated[float, Field(ge=0, le=1, strict=True)]
Deviation = Annotated[float, Field(ge=0.001, le=1, strict=True)]


def check_values(values: Mapping[str, object], kinds: Mapping[str, Any], where: str = "") -> None:
    """ValueError for a value with a free name (an argument, say) whose name has no kind, or that is not of its kind.

    The message begins with `where`.
    """
    for name, value in values.items():
        if name not in kinds:
            raise ValueError(f"{where}{name!r} cannot be set; known are {', '.join(sorted(kinds)) or 'none'}")
        try:
            TypeAdapter(kinds[name], config=ConfigDict(strict=True, allow_inf_nan=False)).validate_python(value)
        except ValidationError as error:
            raise ValueError(f"{where}{name} is {value!r}: {error.errors()[0]['msg']}") from None
