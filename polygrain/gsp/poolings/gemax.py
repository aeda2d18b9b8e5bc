"""Generalised max pooling: the vector whose product with every feature is as near to 1 as a ridge allows (GeMax)."""

import torch
from jaxtyping import Float
from torch import Tensor

from polygrain.config.schema import Factor
from polygrain.gsp.poolings.pooling import Pooled, Pooling


class GeneralisedMax(Pooling, name="gemax"):
    """F (F'F + ridge I)^-1 1 for a map F of `channel place` (Murray et al. 2016); frequent features do not dominate."""

    def __init__(self, channels: int, ridge: Factor) -> None:
        super().__init__(channels)
        self.ridge = ridge

    def forward(self, maps: Float[Tensor, "batch channel y x"]) -> Pooled:
        """Solved in float32; `weights`, one per place, may be negative."""
        features = maps.flatten(2).to(torch.promote_types(maps.dtype, torch.float32))
        with torch.autocast(maps.device.type, enabled=False):
            gram = features.mT @ features
            gram = gram + self.ridge * torch.eye(gram.shape[-1]).to(gram)
            weights = torch.cholesky_solve(torch.ones_like(gram[..., :1]), torch.linalg.cholesky(gram))
            vector = (features @ weights).squeeze(2)
        return Pooled(vector.to(maps.dtype), weights=weights.squeeze(2).unflatten(1, maps.shape[2:]))
