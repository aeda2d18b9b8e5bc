"""What the page compares: models, each with the embeddings that it gives the same images."""

from pathlib import Path

import numpy as np
from jaxtyping import Float32, UInt8

from polygrain.app import cache, embedding, knob
from polygrain.app.gallery import Gallery
from polygrain.app.knob import Knob
from polygrain.app.listing import Listing
from polygrain.app.squares import Images
from polygrain.encoder.model import Model

# Images that a search begins with, and at most.
SHOWN, MOST_SHOWN = 24, 60


class Side:
    """A model with the images that it embedded, under the name and words that the page shows.

    `shown`: images that a search begins with. `images`: where they are no files below the gallery's root.
    """

    def __init__(
        self, name: str, what: str, model: Model, knob: Knob, shown: int = SHOWN, images: Images | None = None
    ) -> None:
        self.name, self.what, self.model, self.knob, self.gallery = name, what, model, knob, knob.plain
        self.shown, self.images = shown, images

    def embed(self, square: UInt8[np.ndarray, "side side 3"]) -> Float32[np.ndarray, "1 dim"]:
        """An image as it asks here."""
        return self.gallery.comparison.query(embedding.embed_squares(self.model, np.stack([square])))


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
    is_plain: bool = False,
    images: Images | None = None,
    folder: Path | None = None,
) -> Knob:
    """The images of a gallery, as many alike, in its order, by another model, smoothed where that is wanted and helps.

    It begins with plain rows where they are asked for. `images`: as of a `Side`; `folder`: the other model's.
    ValueError where the images are not there any more.
    """
    listing = images or Listing(gallery.root, gallery.paths, {})
    file = cache.place(listing.root, digest)
    alike = embedding.Wanted(gallery.comparison.alike)
    embedding.write(model, digest, listing, file, smooth=smooth, wanted=alike, folder=folder)
    embedded = knob.of_file(file, digest, listing.root, not is_plain)
    if embedded.plain.paths != gallery.paths:
        lost = len(gallery.paths) - len(embedded.plain.paths)
        raise ValueError(f"{lost:,} of the images in {listing.root} cannot be read any more: embed them anew")
    return embedded
