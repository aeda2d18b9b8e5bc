"""Linear discriminants from sums over batches, for features that do not fit in memory (GSP, Table 5)."""

import scipy.linalg
import torch
from jaxtyping import Float, Int
from torch import Tensor

RIDGE = 1e-4  # of the mean variance within classes; added to every direction, because some have no variance


class ClassSums:
    """Sums of labelled features in float64."""

    def __init__(self, classes: int, dim: int, where: torch.device) -> None:
        self.counts = torch.zeros(classes, dtype=torch.float64, device=where)
        self.sums = torch.zeros(classes, dim, dtype=torch.float64, device=where)
        self.products = torch.zeros(dim, dim, dtype=torch.float64, device=where)

    def add(self, features: Float[Tensor, "batch dim"], labels: Int[Tensor, " batch"]) -> None:
        features = features.double()
        self.counts += torch.bincount(labels, minlength=len(self.counts))
        self.sums.index_add_(0, labels, features)
        self.products += features.T @ features

    def discriminants(self, dims: int) -> tuple[Float[Tensor, " dim"], Float[Tensor, "dim axis"]]:
        """The mean of all features, and at most `dims` axes that separate the classes best, the best first, float32.

        The variance within classes is 1 along each axis. There are at most as many axes as classes, less one, and as
        features have dimensions.
        """
        is_met = self.counts > 0
        counts, sums, total = self.counts[is_met], self.sums[is_met], float(self.counts.sum())
        mean = sums.sum(0) / total
        between = (sums / counts[:, None] - mean) * (counts / total).sqrt()[:, None]
        within = self.products / total - mean[:, None] * mean - between.T @ between
        within += RIDGE * within.trace() / len(within) * torch.eye(len(within)).to(within)
        dims, size = min(dims, len(counts) - 1, len(within)), len(within)
        _, axes = scipy.linalg.eigh(
            (between.T @ between).cpu().numpy(), within.cpu().numpy(), subset_by_index=(size - dims, size - 1)
        )
        return mean.float(), torch.from_numpy(axes[:, ::-1].copy()).to(mean.device).float()
