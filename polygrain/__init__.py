"""The library: each room is a package, imported by its name.

from polygrain import embed, load

embeddings = embed(load("profiles/shoes/data/choice"), ["a.jpg", "b.jpg"])
"""

import importlib
from typing import Any

ROOMS = {"embed": "polygrain.app", "load": "polygrain.encoder"}


def __getattr__(name: str) -> Any:
    # Not imported above: the command line answers before torch is loaded.
    if name in ROOMS:
        return getattr(importlib.import_module(ROOMS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
