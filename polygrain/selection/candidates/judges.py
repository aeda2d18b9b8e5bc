"""What judges candidates: views of the sampled images, and the neighbours of a careful look.

One model embeds its images once. Then every form of these embeddings is judged, for which no network runs: stored
embeddings will do.
"""

from dataclasses import dataclass
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
from polygrain.store.collection import Collection

Neighbours = dict[str, Int[np.ndarray, "image neighbour"]]


class Settings(schema.Section):
    criterion: CriterionSettings
    reference: Reference = Field(description="whose neighbours should be kept")
    first_strength: float = Field(gt=0, le=1, description="share of what adaptors add at which all models are compared")
    strengths: list[Annotated[float, Field(gt=0, le=10)]] = Field(
        max_length=20, description="at which the finalists are measured, too"
    )
    finalists: schema.Count = Field(description="models, the best by the criterion, that are looked at further")
    layer: Literal["clusters", "none"] = Field(description="the last layer: in closed form from clusters, or none")
    blocks: int = Field(ge=1, le=1000, description="outputs side by side in front of it: the last block's, and before")
    mirrored: bool = Field(
        description="try the mean with the mirror image's embedding, where resolution.cost allows it"
    )
    errors: float = Field(
        ge=0, le=100, description="standard errors within which candidates count as equal: the gentlest wins"
    )
    guard: float = Field(ge=0, le=100, description="standard errors by which no task may fall below the encoder")
    alike: dict[schema.Name, Annotated[int, Field(ge=2, le=1_000_000)]] = Field(
        description="task: about how many images show the same thing; left out where that is not known"
    )


@dataclass(frozen=True)
class Judging:
    """By what candidates are judged: the settings, the most passes, what was `seen` of the sample, the clusters of the
    training images, and the stored `features`."""

    settings: Settings
    cost: float
    seen: Seen
    granularities: Granularities
    features: Stored | None = None


@dataclass(frozen=True)
class Outputs:
    """One model's outputs of several blocks, the last of this width: of what is judged, and of what trains."""

    judged: Embedded
    train: Float32[np.ndarray, "row dim"]
    width: int


@dataclass(frozen=True)
class Judge:
    """Knows the sampled images, what was seen of them, the `reference`'s neighbours, and the training images."""

    sample: Sample
    collection: Collection
    judging: Judging
    reference: Neighbours

    def embed(self, model: Model, pixels: arrays.Reader, layers: bool) -> Outputs:
        """By one model: what is judged, and for `layers` what they are fitted to."""
        features, granularities = self.judging.features, self.judging.granularities
        rows = self.collection.train[granularities.rows if granularities.labels and layers else slice(0)]
        train = embed(model, features, pixels, rows, "training images")
        stored = self.judging.seen.views.get(model.config.side)
        if stored is not None and stored.holds(model):
            judged = Embedded.of(stored.embed(model, np.arange(len(self.sample.rows))))
        else:
            judged = criterion.embed_views(model, pixels, self.sample, self.judging.settings.criterion)
        return Outputs(judged, train, model.widths[0])

    def fit(self, outputs: Outputs) -> Whitening | None:
        """The last layer of a model in closed form; None without a granularity, or where nothing varies."""
        return self.judging.granularities.fit(outputs.train, outputs.judged.stacked())

    def judge(self, embedded: Embedded) -> tuple[Judged, Neighbours]:
        """Criterion and agreement of each sampled image, and its nearest others in the sample, by task."""
        neighbours = criterion.neighbours(embedded.plain, self.sample, self.judging.settings.criterion.neighbours)
        return Judged(*criterion.score(embedded, neighbours, self.reference, self.sample)), neighbours


def appoint(judging: Judging, collection: Collection) -> Judge:
    """The judge, with the neighbours of the careful look that was taken."""
    settings, seen = judging.settings, judging.seen
    if seen.looks is None:
        raise ValueError("`resolution` wrote no careful looks: run `dvc repro resolution`")
    looks = criterion.half_whitened(seen.looks, settings.reference.dim)
    reference = criterion.neighbours(looks, seen.sample, settings.criterion.neighbours)
    return Judge(seen.sample, collection, judging, reference)
