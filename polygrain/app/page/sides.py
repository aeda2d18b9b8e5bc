"""What the page compares: models, each with the embeddings that it gives the same images."""

from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Float32, UInt8

from polygrain.collection import cache, embedding
from polygrain.collection import file as embeddings
from polygrain.collection.collection import Gallery, read, read_of
from polygrain.collection.listing import Listing
from polygrain.collection.stored import Images
from polygrain.encoder.model import Model

# Images that a search begins with, and at most.
SHOWN, MOST_SHOWN = 24, 60


class Side:
    """A model with the plain rows of the images in its file, under the name and words that the page shows.

    The slider has a place for these and one for the smoothed rows, if the file has them; it begins with those, if that
    is wanted. `shown`: images that a search begins with. `images`: where they are no files below the gallery's root.
    """

    def __init__(
        self,
        name: str,
        what: str,
        model: Model,
        gallery: Gallery,
        file: Path,
        smooth: bool = True,
        shown: int = SHOWN,
        images: Images | None = None,
    ) -> None:
        self.name, self.what, self.model, self.gallery, self.file = name, what, model, gallery, file
        self.shown, self.images = shown, images
        is_smoothed = embeddings.has_smoothed(file)
        self.start, self.places = int(smooth and is_smoothed), 1 + is_smoothed

    @cached_property
    def smoothed(self) -> Gallery:
        return read(self.file)

    @property
    def settings(self) -> list[str]:
        """The places in words."""
        return [str(self.at(place).comparison) for place in range(self.places)]

    def at(self, place: int) -> Gallery:
        return self.smoothed if place else self.gallery

    def embed(self, picture: UInt8[np.ndarray, "y x 3"]) -> Float32[np.ndarray, "1 dim"]:
        """An image as it asks here."""
        return self.gallery.comparison.query(embedding.embed_pictures(self.model, [picture]))


def encoder_of(model: Model) -> Model | None:
    """The encoder that a model was made of, at the model's input; None where the model is that encoder."""
    if model.config.adaptors is None and model.config.reduced is None and model.config.blocks == 1:
        return None
    encoder = model.without_adaptors().without_reduction()  # what lies behind adapted embeddings was made for them
    return encoder.to(model.mean.device)


def same_images(
    gallery: Gallery,
    model: Model,
    digest: str,
    smooth: bool,
    images: Images | None = None,
    folder: Path | None = None,
) -> tuple[Gallery, Path]:
    """The images of a gallery, as many alike, in its order, by another model, and their file; with smoothed rows, too,
    where that is wanted and helps.

    `images`: as of a `Side`; `folder`: the other model's. ValueError where the images are not there any more.
    """
    listing = images or Listing(gallery.root, gallery.paths, {})
    file = cache.place(listing.root, digest)
    alike = embedding.Wanted(gallery.comparison.alike)
    embedding.write(model, digest, listing, file, smooth=smooth, wanted=alike, folder=folder)
    embedded = read_of(file, digest, listing.root, smooth=False)
    if embedded.paths != gallery.paths:
        lost = len(gallery.paths) - len(embedded.paths)
        raise ValueError(f"{lost:,} of the images in {listing.root} cannot be read any more: embed them anew")
    return embedded, file
