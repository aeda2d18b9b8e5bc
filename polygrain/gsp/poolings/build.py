"""A pooling by its name (GSP, Table 6), and with its linear map to the embedding.

pool = build("gsp", channels=128, prototypes=64, mu=0.3, epsilon=5.0)
vector, attributes, weights = pool(maps)        # vector: pool.size numbers per image
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

# Each adds its poolings to KNOWN.
from polygrain.gsp.poolings import (  # noqa: F401
    cbam,
    crow,
    delf,
    gemax,
    gsop,
    netvlad,
    otp,
    plain,
    selected,
    solar,
    t_smk,
    tfm,
    weldon,
)
from polygrain.gsp.poolings.pooling import KNOWN, Pooled, Pooling


def build(name: str, channels: int, **values: object) -> Pooling:
    """The pooling of that name. ValueError lists the known names, or the values that it takes with their bounds."""
    return KNOWN.checked(name, values)(channels, **values)


class Head(nn.Module):
    """A pooling with the linear map to the embedding: `batch channel y x` -> `Pooled` with `embedding` numbers.

    Prototypes lie in the embedded space (GSP, 4.4). Plain GSP sums embedded features, which equals embedding their sum;
    with a generalised mean or a maximum, the backbone's features are pooled and then embedded.
    """

    def __init__(self, channels: int, embedding: int, pooling: str, **values: object) -> None:
        super().__init__()
        kind = KNOWN.checked(pooling, values)
        self.takes = kind.takes
        space = {"space": embedding} if self.takes == "both" else {}
        self.pool = kind(embedding if self.takes == "embedded" else channels, **values, **space)
        size = channels if self.takes == "embedded" else self.pool.size
        self.project: Any = nn.Identity()
        if self.takes != "own" or size != embedding:
            self.project = nn.Linear(size, embedding, bias=False)
            nn.init.xavier_uniform_(self.project.weight)

    def forward(self, maps: Float[Tensor, "batch channel y x"]) -> Pooled:
        if self.takes == "embedded":
            return self.pool(self.embed(maps))
        pooled = self.pool(maps, self.embed(maps)) if self.takes == "both" else self.pool(maps)
        return pooled._replace(vector=self.project(pooled.vector))

    def embed(self, maps: Float[Tensor, "batch channel y x"]) -> Float[Tensor, "batch embedding y x"]:
        """The linear map at every place."""
        return nn.functional.conv2d(maps, self.project.weight[:, :, None, None])
