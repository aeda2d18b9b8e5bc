"""Principal components of pairs' descriptors: one reduction for all runs, or one for each run's training pairs."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from safetensors.numpy import load_file, save_file
from sklearn.decomposition import PCA

from stages.core.store.reading import reading, remedy_for


class Reduction(NamedTuple):
    """(x - mean) @ components.T: centred, not whitened."""

    mean: Float[np.ndarray, " dim"]
    components: Float[np.ndarray, "component dim"]
    explained: Float[np.ndarray, " component"]
    """share of the variance along each component"""

    def apply(self, descriptors: Float[np.ndarray, "pair dim"]) -> Float[np.ndarray, "pair component"]:
        return (descriptors - self.mean) @ self.components.T


def fit(descriptors: Float[np.ndarray, "row dim"], components: int) -> Reduction:
    """The leading components of the rows, exactly; ValueError where the rows span fewer."""
    rows, dim = descriptors.shape
    # Centred rows span one dimension less than there are rows.
    largest = min(rows - 1, dim)
    if components > largest:
        raise ValueError(
            f"tll_pca.components is {components}; {rows} descriptors of {dim} dimensions have at most {largest}"
        )
    # Which of the two is cheaper depends on the longer side; both are exact.
    solver = "covariance_eigh" if rows > dim else "full"
    pca = PCA(components, svd_solver=solver).fit(descriptors)
    parts = (pca.mean_, pca.components_, pca.explained_variance_ratio_)
    return Reduction(*(np.ascontiguousarray(part, np.float32) for part in parts))


def save(reductions: list[Reduction], file: Path) -> None:
    """Several reductions in one safetensors file."""
    save_file({name: np.stack([getattr(one, name) for one in reductions]) for name in Reduction._fields}, file)


def load(file: Path) -> list[Reduction]:
    """What `save` wrote."""
    with reading(file, remedy_for(file.parent)):
        tensors = load_file(file)
        return [Reduction(*parts) for parts in zip(*(tensors[name] for name in Reduction._fields), strict=True)]
