"""The effective rank of an embedding (Roy and Vetterli, 2007), of its covariance."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional


def effective_rank(x: Float[Tensor, "batch dim"]) -> Float[Tensor, ""]:
    """exp(-sum p log p), where p are the shares of the eigenvalues of the unit-length features' covariance.

    From 1 for one axis to `dim` for axes that vary alike; 0 for a single point.
    """
    unit = functional.normalize(x.double(), dim=1)
    variances = torch.linalg.svdvals(unit - unit.mean(0)).square()
    if variances.max() <= 1e-12 * len(x):  # of rounding alone
        return x.new_zeros(())
    return torch.special.entr(variances / variances.sum()).sum().exp().to(x.dtype)
