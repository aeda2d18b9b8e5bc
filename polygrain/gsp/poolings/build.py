"""From a feature map to one vector: every pooling by its name (GSP, Table 6), and with its linear map to the embedding.

pool = build("gsp", channels=128, prototypes=64, mu=0.3, epsilon=5.0)
vector, attributes, weights = pool(maps)        # vector: pool.size numbers per image
"""

import inspect
from typing import Annotated

from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from polygrain.config.schema import Factor, Share, Width, check_values
from polygrain.gsp.poolings.cbam import CBAM
from polygrain.gsp.poolings.crow import CroW
from polygrain.gsp.poolings.delf import DeLF
from polygrain.gsp.poolings.gemax import GeneralisedMax
from polygrain.gsp.poolings.gsop import GSoP
from polygrain.gsp.poolings.netvlad import NetVLAD
from polygrain.gsp.poolings.otp import OTP
from polygrain.gsp.poolings.plain import Average, AverageMaximum, GeneralisedMean, Maximum, Pooled
from polygrain.gsp.poolings.prototypes import start_prototypes
from polygrain.gsp.poolings.selected import ScaledMaximum, SelectedMaximum, SelectedMean, SelectedSum
from polygrain.gsp.poolings.solar import SOLAR
from polygrain.gsp.poolings.t_smk import NormWeighted
from polygrain.gsp.poolings.tfm import Transformer
from polygrain.gsp.poolings.weldon import WELDON

__all__ = ["KNOWN", "Head", "Pooled", "build", "check", "start_prototypes"]

KNOWN: dict[str, type[nn.Module]] = {
    "gap": Average,
    "gmp": Maximum,
    "gap_gmp": AverageMaximum,
    "gemean": GeneralisedMean,
    "gemax": GeneralisedMax,
    "gsp": SelectedSum,
    "gemean_gsp": SelectedMean,
    "gmp_gsp": SelectedMaximum,
    "gsp_gmp": ScaledMaximum,
    "cbam": CBAM,
    "crow": CroW,
    "delf": DeLF,
    "gsop": GSoP,
    "netvlad": NetVLAD,
    "otp": OTP,
    "solar": SOLAR,
    "t_smk": NormWeighted,
    "tfm": Transformer,
    "weldon": WELDON,
}
Few = Annotated[int, Field(ge=1, le=1024)]
# The allowed values, by name; a name means the same in every pooling.
VALUES = {
    **dict.fromkeys(["attention", "centres", "hidden", "prototypes", "width"], Width),
    **dict.fromkeys(["heads", "highest", "kernel", "layers", "reduction", "window"], Few),
    **dict.fromkeys(["epsilon", "ridge"], Factor),
    "grid": Annotated[int, Field(ge=1, le=64)],
    "iterations": Annotated[int, Field(ge=1, le=10_000)],
    "lowest": Annotated[int, Field(ge=0, le=1024)],
    "mu": Share,
    "p": Annotated[float, Field(gt=0, le=1000)],  # the mean is the maximum long before
}
# Most poolings pool the backbone's features, and the linear map to the embedding follows. Exceptions:
EMBEDDED = {"gsp", "gsop", "weldon"}  # pool mapped features
BOTH = {"gemean_gsp", "gmp_gsp", "gsp_gmp"}  # choose places among mapped features, and pool the backbone's
OWN = {"netvlad", "otp", "tfm"}  # have a linear map of their own; another follows only if the sizes differ


def build(name: str, channels: int, **values: object) -> nn.Module:
    """The pooling of that name. Its call takes `batch channel y x` and returns `Pooled`; `size` is the vector's length.

    ValueError lists the known names, or the values that this pooling takes.
    """
    require(name, values)
    return KNOWN[name](channels, **values)


def check(name: str, values: dict[str, object]) -> None:
    """ValueError for an unknown pooling, and for values that it does not take or that are out of bounds."""
    require(name, values)
    check_values(values, VALUES, f"pooling {name!r}: ")


def require(name: str, values: dict[str, object]) -> None:
    """ValueError for an unknown pooling, and for values that it does not take."""
    if name not in KNOWN:
        raise ValueError(f"no pooling {name!r}; known: {', '.join(sorted(KNOWN))}")
    taken = [key for key in inspect.signature(KNOWN[name]).parameters if key not in ("channels", "space")]
    if set(values) - {"space"} != set(taken):
        raise ValueError(
            f"pooling {name!r} takes {', '.join(taken) or 'no values'}; given: {', '.join(values) or 'none'}"
        )


class Head(nn.Module):
    """A pooling with the linear map to the embedding: `batch channel y x` -> `Pooled` with `embedding` numbers.

    Prototypes lie in the embedded space (GSP, 4.4). Plain GSP sums embedded features, which equals embedding their sum;
    with a generalised mean or a maximum, the backbone's features are pooled and then embedded.
    """

    def __init__(self, channels: int, embedding: int, pooling: str, **values: object) -> None:
        super().__init__()
        self.name = pooling
        space = {"space": embedding} if pooling in BOTH else {}
        self.pool = build(pooling, embedding if pooling in EMBEDDED else channels, **values | space)
        mapped = pooling in OWN and self.pool.size == embedding
        size = channels if pooling in EMBEDDED else self.pool.size
        self.project = nn.Identity() if mapped else nn.Linear(size, embedding, bias=False)
        if isinstance(self.project, nn.Linear):
            nn.init.xavier_uniform_(self.project.weight)

    def forward(self, maps: Float[Tensor, "batch channel y x"]) -> Pooled:
        if self.name in EMBEDDED:
            return self.pool(self.embed(maps))
        pooled = self.pool(maps, self.embed(maps)) if self.name in BOTH else self.pool(maps)
        return pooled._replace(vector=self.project(pooled.vector))

    def embed(self, maps: Float[Tensor, "batch channel y x"]) -> Float[Tensor, "batch embedding y x"]:
        """The linear map at every place."""
        return nn.functional.conv2d(maps, self.project.weight[:, :, None, None])
