"""Use a model that polygrain made, from any folder: what is named here is public and stays.

model = load("profiles/shoes/data/choice")
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stages.core.encoder.model import Model, load

# Imported when first asked for: torch takes seconds, and `polygrain --help` needs none of it.
PLACES = {
    "Model": "stages.core.encoder.model",
    "load": "stages.core.encoder.model",
}
__all__ = ["Model", "load"]


def __getattr__(name: str) -> object:
    if name not in PLACES:
        raise AttributeError(f"polygrain has no {name!r}; public are {', '.join(__all__)}")
    return getattr(importlib.import_module(PLACES[name]), name)
