"""A finished model in use: embed, search, export, and the search page."""

from polygrain.app.embedding import embed
from polygrain.app.gallery import Hit, search

__all__ = ["Hit", "embed", "search"]
