"""A collection: images or rows of any encoder, how they are compared, and the model that made them."""

import importlib
from typing import Any

__all__ = ["Changes", "Collection", "Hit", "embed"]


def __getattr__(name: str) -> Any:
    # Stages need the comparison alone, and not the imports of a collection.
    if name in __all__:
        file = "embedding" if name == "embed" else "collection"
        return getattr(importlib.import_module(f"polygrain.collection.{file}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
