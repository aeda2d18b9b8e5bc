"""Postprocessing of a collection: its rows are centred on their mean, and smoothed by diffusion on their graph."""

from polygrain.collection.postprocessing.comparison import Comparison

__all__ = ["Comparison"]
