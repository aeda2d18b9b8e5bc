"""Principal components of pairs' descriptors: one reduction for all runs, or one for each run's training pairs."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from polygrain.compute.principal import largest
from polygrain.store.reading import reading, remedy_for
from polygrain.store.tensors import read_tensors, write_tensors


class Reduction(NamedTuple):
    """(x - mean) @ components.T: centred, not whitened."""

    mean: Float[np.ndarray, " dim"]
    components: Float[np.ndarray, "component dim"]
    explained: Float[np.ndarray, " component"]
    """share of the variance along each component"""

    def apply(self, descriptors: Float[np.ndarray, "pair dim"]) -> Float[np.ndarray, "pair component"]:
        return (descriptors - self.mean) @ self.components.T


def fit(descriptors: Float[np.ndarray, "row dim"], components: int) -> Reduction:
    """The leading components of the rows, by scikit-learn: descriptors are few, and many fits follow one another."""
    if components > largest(descriptors):
        raise ValueError(
            f"tll_pca.components is {components}; {len(descriptors)} descriptors of {descriptors.shape[1]} dimensions "
            f"have at most {largest(descriptors)}"
        )
    from sklearn.decomposition import PCA  # takes a second to import

    # Both are exact; which is quicker depends on the longer side.
    solver = "covariance_eigh" if len(descriptors) > descriptors.shape[1] else "full"
    found = PCA(components, svd_solver=solver).fit(descriptors)
    parts = found.mean_, found.components_, found.explained_variance_ratio_
    return Reduction(*(np.ascontiguousarray(part, np.float32) for part in parts))


def save(reductions: list[Reduction], file: Path) -> None:
    """Several reductions in one safetensors file."""
    parts = {name: np.stack([getattr(one, name) for one in reductions]) for name in Reduction._fields}
    write_tensors({name: torch.from_numpy(part) for name, part in parts.items()}, file)


def load(file: Path) -> list[Reduction]:
    """The reductions that `save` wrote."""
    tensors = {name: tensor.numpy() for name, tensor in read_tensors(file).items()}
    with reading(file, remedy_for(file.parent)):
        return [Reduction(*parts) for parts in zip(*(tensors[name] for name in Reduction._fields), strict=True)]
