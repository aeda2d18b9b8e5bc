"""A finished model in use: embed, search, export, and the search page."""

from polygrain.collection.collection import Hit, search
from polygrain.collection.embedding import embed

__all__ = ["Hit", "embed", "search"]
