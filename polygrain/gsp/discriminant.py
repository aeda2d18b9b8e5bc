"""Linear discriminants of features that are too many to hold, from sums over batches (GSP, Table 5: 512 of them)."""

import scipy.linalg
import torch
from jaxtyping import Float, Int
from torch import Tensor

RIDGE = 1e-4  # of the mean variance within classes, added to every direction: some may have none


class Scatter:
    """Sums of labelled features, in float64, from which their discriminants follow."""

    def __init__(self, classes: int, dim: int, where: torch.device) -> None:
        self.counts = torch.zeros(classes, dtype=torch.float64, device=where)
        self.sums = torch.zeros(classes, dim, dtype=torch.float64, device=where)
        self.products = torch.zeros(dim, dim, dtype=torch.float64, device=where)

    def add(self, features: Float[Tensor, "batch dim"], labels: Int[Tensor, " batch"]) -> None:
        features = features.double()
        self.counts += torch.bincount(labels, minlength=len(self.counts))
        self.sums.index_add_(0, labels, features)
        self.products += features.T @ features

    def discriminants(self, dims: int) -> tuple[Float[Tensor, " dim"], Float[Tensor, "dim kept"]]:
        """The mean of all features, and the directions that part the classes best, the best first, float32.

        At most one fewer than there are classes, and as many as a feature has numbers; `dims` where that is fewer.
        Along each the variance within classes is 1. ValueError for a single class.
        """
        known = self.counts > 0
        if int(known.sum()) < 2:
            raise ValueError(f"{int(known.sum())} classes have no discriminants; two or more are needed")
        counts, sums, total = self.counts[known], self.sums[known], float(self.counts.sum())
        mean = sums.sum(0) / total
        between = (sums / counts[:, None] - mean) * (counts / total).sqrt()[:, None]
        within = self.products / total - mean[:, None] * mean - between.T @ between
        within += RIDGE * within.trace() / len(within) * torch.eye(len(within)).to(within)
        kept = min(dims, len(counts) - 1, len(within))
        last = len(within) - 1
        _, axes = scipy.linalg.eigh(
            (between.T @ between).cpu().numpy(), within.cpu().numpy(), subset_by_index=(last - kept + 1, last)
        )
        return mean.float(), torch.from_numpy(axes[:, ::-1].copy()).to(mean.device).float()
