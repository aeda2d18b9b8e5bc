"""The library: each room is a package, imported by its name.

from polygrain.encoder import load
from polygrain.app import embed

embeddings = embed(load("profiles/shoes/data/choice"), ["a.jpg", "b.jpg"])
"""
