"""The sides that the page compares: collections of the same images, each by its own model."""

import numpy as np
from jaxtyping import Float32, UInt8

from polygrain.collection import embedding
from polygrain.collection.collection import Collection
from polygrain.collection.index import Index
from polygrain.encoder.model import Model

# Images that a search begins with, and at most.
FIRST_SHOWN, MOST_SHOWN = 24, 60


class Side:
    """A collection under the name and words that the page shows.

    The slider has a place for its plain rows and one for the smoothed ones, if there are any; it begins with those, if
    that is wanted. `shown`: images that a search begins with.
    """

    def __init__(
        self, name: str, what: str, collection: Collection, smooth: bool = True, shown: int = FIRST_SHOWN
    ) -> None:
        self.name, self.what, self.collection, self.shown = name, what, collection, shown
        self.start, self.places = int(smooth and collection.is_smoothed), 1 + collection.is_smoothed

    @property
    def network(self) -> Model:
        return self.collection.maker.network

    @property
    def settings(self) -> list[str]:
        """The places in words."""
        comparison = self.collection.comparison
        return [str(one) for one in (comparison.unsmoothed(), comparison)[: self.places]]

    def at(self, place: int) -> Index:
        return self.collection.index if place else self.collection.plain_index

    def embed(self, picture: UInt8[np.ndarray, "y x 3"]) -> Float32[np.ndarray, "1 dim"]:
        """An image as it asks here."""
        return self.collection.comparison.query(embedding.embed_pictures(self.network, [picture]))
