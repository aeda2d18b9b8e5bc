"""Exact k-means at scale: seeds shared by every k, then Lloyd's iterations."""

from polygrain.clustering.lloyd import Clusters, kmeans

__all__ = ["Clusters", "kmeans"]
