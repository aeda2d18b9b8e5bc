"""How the rows of a collection are compared: centred on their mean, and smoothed by diffusion on their graph."""

from polygrain.collection.postprocessing.comparison import Comparison

__all__ = ["Comparison"]
