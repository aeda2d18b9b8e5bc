"""WELDON: the sum of the highest and of the lowest values of every channel (Durand et al. 2016)."""

from typing import Annotated

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from polygrain.gsp.poolings.pooling import Few, Pooled, Pooling


class WELDON(Pooling, name="weldon"):
    """`highest` and `lowest` values are summed (3 and 3 in GSP's study), as many as the map has where it has fewer."""

    takes = "embedded"

    def __init__(self, channels: int, highest: Few, lowest: Annotated[int, Field(ge=0, le=1024)]) -> None:
        super().__init__(channels)
        self.highest, self.lowest = highest, lowest

    def forward(self, maps: Float[Tensor, "batch channel y x"]) -> Pooled:
        values = maps.flatten(2)
        count = values.shape[2]
        vector = values.topk(min(self.highest, count), 2).values.sum(2)
        return Pooled(vector + values.topk(min(self.lowest, count), 2, largest=False).values.sum(2))
