"""Generalized Sum Pooling as a layer that replaces a mean: weights from transport to trained prototypes.

pool = GeneralizedSumPooling(channels=128, prototypes=64, mu=0.3, epsilon=5.0)
pooled, attributes = pool(maps)
"""

from jaxtyping import Float
from torch import Tensor, nn

from polygrain.gsp.poolings.selected import SelectedSum


class GeneralizedSumPooling(nn.Module):
    """sum_j p_j f_j with weights from transport to trained prototypes (Eq. 4.1); the mean of all features for mu = 1.

    ValueError for mu outside (0, 1] and epsilon <= 0; on the CPU also for maps with NaN.
    """

    def __init__(self, channels: int, prototypes: int, mu: float, epsilon: float) -> None:
        super().__init__()
        self.pool = SelectedSum(channels, prototypes, mu, epsilon)

    def forward(
        self, maps: Float[Tensor, "batch channel y x"]
    ) -> tuple[Float[Tensor, "batch channel"], Float[Tensor, "batch prototype"]]:
        """(pooled, attributes): the weighted sum in the type of the map, and each prototype's part of it, Eq. 4.3."""
        vector, attributes, _ = self.pool(maps)
        return vector, attributes

    def weigh(self, maps: Float[Tensor, "batch channel y x"]) -> Float[Tensor, "batch y x"]:
        """p: the weight of every place; they sum to 1 over a map."""
        return self.pool.selection(maps)[0]
