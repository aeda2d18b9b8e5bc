"""Use a model that polygrain made, from any folder: what is named here is public and stays.

model = load("profiles/shoes/data/choice")
"""

from polygrain.embedding import embed
from polygrain.gallery import Hit, search
from stages.core.encoder.model import Model, load

__all__ = ["Hit", "Model", "embed", "load", "search"]
