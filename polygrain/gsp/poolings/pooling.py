"""The parts that all poolings share: their result, their class, and the bounds of their values."""

from typing import Annotated, ClassVar, Literal, NamedTuple

from jaxtyping import Float
from pydantic import AfterValidator, Field
from torch import Tensor, nn

from polygrain.config.schema import Variants

Takes = Literal["features", "embedded", "both", "own"]
Few = Annotated[int, Field(ge=1, le=1024)]
Exponent = Annotated[float, Field(gt=0, le=1000)]  # the mean is the maximum long before


def odd(side: int) -> int:
    if side % 2 == 0:
        raise ValueError("an odd side is needed")
    return side


Odd = Annotated[Few, AfterValidator(odd)]


class Pooled(NamedTuple):
    """One vector per image; of poolings that select, also the weight by prototype (z, Eq. 4.3) and by place (p)."""

    vector: Float[Tensor, "batch size"]
    attributes: Float[Tensor, "batch prototype"] | None = None
    weights: Float[Tensor, "batch y x"] | None = None


class Pooling(nn.Module):
    """From `batch channel y x` to `Pooled` with `size` numbers per image. A subclass with a name is known by it.

    `takes` says how `Head` joins it to the linear map: it pools the backbone's `features`, the `embedded` ones, chooses
    places among the embedded and pools the backbone's (`both`), or has a linear map of its `own`.
    """

    takes: ClassVar[Takes] = "features"

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def __init_subclass__(cls, name: str | None = None) -> None:
        super().__init_subclass__()
        if name:
            KNOWN[name] = cls


KNOWN = Variants[type[Pooling]]("pooling", given=1)
