"""Whitening by the definition: all axes of the covariance, in float64."""

import numpy as np


def whitened(features: np.ndarray, dim: int, power: float = 0.25) -> np.ndarray:
    """Rows of unit length; `power` is that of the variance by which an axis is divided: 1/4 whitens half, 1/2 fully."""
    x = np.asarray(features, np.float64)
    x = x - x.mean(0)
    variances, axes = np.linalg.eigh(np.cov(x.T))
    turned = x @ axes[:, ::-1][:, :dim] / variances[::-1][:dim] ** power
    return turned / np.linalg.norm(turned, axis=1, keepdims=True)
