"""A linear layer from clusters of many granularities, in closed form."""

from typing import Any

__all__ = ["ClusterWhitening", "load", "save"]


def __getattr__(name: str) -> Any:
    # Stages need neither it nor its imports.
    if name in __all__:
        from polygrain.fisher import estimator

        return getattr(estimator, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
