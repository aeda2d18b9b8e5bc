"""The library: each room is a package, imported by its name.

from polygrain import Collection

shoes = Collection.of("my/images", model="profiles/shoes/data/choice")
hits = shoes.search(["query.jpg"])
"""

import importlib
from typing import Any

ROOMS = {
    "Collection": "polygrain.collection",
    "Hit": "polygrain.collection",
    "embed": "polygrain.collection",
    "load": "polygrain.encoder",
}


def __getattr__(name: str) -> Any:
    # Not imported above: the command line answers before torch is loaded.
    if name in ROOMS:
        return getattr(importlib.import_module(ROOMS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
