"""How a collection is compared: less its own mean, and smoothed by its neighbours."""

from polygrain.comparing.comparison import Comparison, smooth

__all__ = ["Comparison", "smooth"]
