"""The judge of candidates: does a form find the views of the sampled images, and the neighbours of a careful look?

A model embeds the images once. Each form of it is judged by these outputs.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Float32, Int
from pydantic import Field

from polygrain.config import schema
from polygrain.encoder.model import Model
from polygrain.encoder.stored import Stored, embed
from polygrain.fisher.granularities import Granularities
from polygrain.retrieval.whitening import Whitening
from polygrain.selection import criterion
from polygrain.selection.candidates.decision import Judged
from polygrain.selection.criterion import CriterionSettings, Embedded, Reference, Sample
from polygrain.selection.seen import Seen
from polygrain.store import arrays
from polygrain.store.image_table import ImageTable

Neighbours = dict[str, Int[np.ndarray, "image neighbour"]]


class Settings(schema.Section):
    criterion: CriterionSettings
    reference: Reference = Field(description="with its nearest images a candidate's are compared")
    layer: Literal["clusters", "none"] = Field(description="the last layer: in closed form from clusters, or none")
    blocks: int = Field(ge=1, le=1000, description="outputs side by side in front of the layer: of the last blocks")
    dim: schema.Width | None = Field(
        description="numbers of an embedding, the last of them zeros where it has fewer; null: 256 with a layer "
        "from clusters, or as many as the layer's input has, if that is fewer"
    )
    errors: float = Field(ge=0, le=100, description="standard errors within which candidates count as equal")
    guard: float = Field(ge=0, le=100, description="standard errors by which no task may fall below the encoder")
    alike: dict[schema.Name, Annotated[int, Field(ge=2, le=1_000_000)]] = Field(
        description="for a task, about how many images show the same thing; leave it out where you do not know"
    )


@dataclass(frozen=True)
class Outputs:
    """What one model gives: of the sampled images and their views, and of the images to which its last layer is fitted.

    The last block's numbers come first, `width` of them; those of blocks before it follow.
    """

    sample: Embedded
    train: Float32[np.ndarray, "row dim"]
    width: int


@dataclass(frozen=True)
class Judge:
    """Judges forms of models on the sample that was `seen`.

    `granularities`: clusters that make last layers. `features`: stored outputs.
    """

    settings: Settings
    collection: ImageTable
    seen: Seen
    granularities: Granularities
    features: Stored | None = None

    @property
    def sample(self) -> Sample:
        return self.seen.sample

    @cached_property
    def reference(self) -> Neighbours:
        """The neighbours of each sampled image under the careful look."""
        if self.seen.looks is None:
            raise ValueError("`resolution` wrote no careful looks: run `dvc repro resolution`")
        looks = criterion.half_whitened(self.seen.looks, self.settings.reference.dim)
        return criterion.neighbours(looks, self.sample, self.settings.criterion.neighbours)

    def embed(self, model: Model, pixels: arrays.Reader, layers: bool) -> Outputs:
        """A model's outputs, stored ones where there are any; without `layers` and a length no image trains."""
        trains = self.settings.dim or (self.granularities.labels and layers)
        clustered = self.granularities.rows if trains else slice(0)
        train = embed(model, self.features, pixels, self.collection.train[clustered], "training images")
        stored = self.seen.views.get(model.config.side)
        if stored is not None and stored.holds(model):
            sample = Embedded.of(stored.embed(model, np.arange(len(self.sample.rows))))
        else:
            sample = criterion.embed_views(model, pixels, self.sample, self.settings.criterion)
        return Outputs(sample, train, model.widths[0])

    def fit(self, outputs: Outputs) -> Whitening | None:
        """The last layer of a model in closed form; None without a granularity, or where nothing varies."""
        return self.granularities.fit(outputs.train, outputs.sample.stacked())

    def judge(self, embedded: Embedded) -> tuple[Judged, Neighbours]:
        """Criterion and agreement of each sampled image, and its nearest others in the sample, by task."""
        neighbours = criterion.neighbours(embedded.plain, self.sample, self.settings.criterion.neighbours)
        return Judged(*criterion.score(embedded, neighbours, self.reference, self.sample)), neighbours
