"""Exact k-means at scale: seeds, Lloyd's iterations, exchanges, and the screens and bounds that make them quick.

Each trick is held against its plain version in the tests.
"""

from polygrain.clustering.lloyd import Clusters, kmeans

__all__ = ["Clusters", "kmeans"]
