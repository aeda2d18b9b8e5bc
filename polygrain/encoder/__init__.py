"""The frozen encoder with or without adaptors: its config, its weights, the views it sees, its embeddings.

What changes the network belongs here; how it is trained does not.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polygrain.encoder.model import Model, load

__all__ = ["Model", "load"]


def __getattr__(name: str) -> Any:
    # A digest is told before torch is loaded.
    if name in __all__:
        from polygrain.encoder import model

        return getattr(model, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
