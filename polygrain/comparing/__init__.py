"""How a collection is compared: less its own mean, and smoothed by its neighbours."""

from polygrain.comparing.comparison import Comparison

__all__ = ["Comparison"]
