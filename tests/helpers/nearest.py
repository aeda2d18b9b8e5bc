"""The nearest centroid by comparing every point with each: what screens and bounds are held against."""

import numpy as np


def assign(points: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """Ties go to the lowest index."""
    differences = np.asarray(points, np.float64)[:, None] - np.asarray(centroids, np.float64)
    return np.square(differences).sum(2).argmin(1)
