"""The frozen encoder with or without adaptors: its config, its weights, the views it sees, its embeddings.

What changes the network belongs here; how it is trained does not.
"""

from polygrain.encoder.model import Model, load

__all__ = ["Model", "load"]
