"""The knob of a search: settings on a line from the very same thing to the same kind.

At the fine end plain rows are compared by all their axes. Smoothed rows follow, half and whole, if a file has them;
then ever fewer axes, if it has a grain. All come from stored rows: no image is looked at again.
"""

import json
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from polygrain.app.gallery import EXACT_ROWS, Gallery, Setting, as_stored, kept_in, require_made
from polygrain.retrieval.smoothing import smooth_as
from polygrain.selection.grain import AXES, FEWEST
from polygrain.store import embeddings

# With more rows there are only the settings that the file names: an index of others is not made in a moment.
MOST_ROWS = EXACT_ROWS // 5
# Of the settings with fewer axes these are told apart by clicks; those between differ too little.
TOLD_APART = (192, 96, 48)

# Rows that clicks are about: more would have to be smoothed for minutes.
MOST_ASKED = 20_000
Rankings = Int64[np.ndarray, "place query rank"]


class Knob:
    """The settings of a collection, the finest first, and the number of the one to begin with.

    `file`: where a choice is kept.
    """

    def __init__(
        self,
        plain: Gallery,
        smoothed: Gallery | None = None,
        settings: list[Setting] | None = None,
        start: Setting | None = None,
        file: Path | None = None,
    ) -> None:
        self.plain, self.smoothed, self.file = plain, smoothed, file
        self.settings = settings or [Setting(plain.index.d, share) for share in ([0.0, 1.0] if smoothed else [0.0])]
        self.start = self.first = self.settings.index(start or self.settings[-1])
        self.at = lru_cache(3)(self.make)

    def make(self, place: int) -> Gallery:
        """The collection as one setting compares it."""
        setting = self.settings[place]
        if setting.axes == self.plain.index.d and setting.smoothed in (0.0, 1.0):
            return self.smoothed if setting.smoothed else self.plain
        return setting.of(self.plain, self.smoothed)

    @property
    def clickable(self) -> list[int]:
        """The places that clicks decide between; none where there is nothing to decide."""
        axes = {self.plain.index.d, *TOLD_APART}
        places = [i for i, one in enumerate(self.settings) if one.axes in axes or i in (self.first, self.start)]
        return places if len(places) > 1 and len(self.plain) >= FEWEST else []

    def asked(self, queries: int, deepest: int, seed: int = 0) -> tuple[Int64[np.ndarray, " query"], Rankings]:
        """Drawn images, and the rows nearest to each at every clickable place, as if it were new.

        The others are smoothed without them: images that were smoothed along cannot tell what smoothing does to new
        ones. At most `MOST_ASKED` rows are looked at.
        """
        drawn = np.random.default_rng(seed).permutation(len(self.plain))[:MOST_ASKED]
        rows, others = np.split(drawn, [min(queries, len(drawn) // 2)])
        vectors, names = self.plain.vectors(others), [""] * len(others)
        smoothed = None
        if self.smoothed:
            by = self.smoothed.smoothing
            smoothed = Gallery(Path(), names, smooth_as(vectors, by), "", smoothing=by)
        knob = Knob(Gallery(Path(), names, vectors, ""), smoothed, self.settings, self.settings[self.start])
        new, ranked = self.plain.vectors(rows), []
        for place in self.clickable:
            gallery = knob.at(place)
            ranked.append(others[gallery.search(gallery.asked(new), deepest)[1]])
        return rows, np.array(ranked)

    def keep(self, place: int) -> None:
        """Writes a setting into the file, where every search finds it."""
        embeddings.annotate(self.file, {"setting": json.dumps(asdict(self.settings[place]))})
        self.start = place


def line(dim: int, axes: int | None, has_smoothed: bool) -> list[Setting]:
    """The settings, the finest first. `axes`: what a file names; None where its axes stand in no order."""
    shares = [0.0, 0.5, 1.0] if has_smoothed else [0.0]
    cuts = sorted({few for few in (*AXES, axes) if few < dim}, reverse=True) if axes else []
    return [Setting(dim, share) for share in shares] + [Setting(few, shares[-1]) for few in cuts]


def of_file(file: Path, model: str, folder: Path, axes: int | None = None, smooth: bool = True) -> Knob:
    """The knob of what the model of this digest and folder made; ValueError where another one did.

    It begins with what was kept, else with smoothed rows where there are any; with plain ones without `smooth`, and by
    so many `axes`, where these are given: then there are no smoothed ones.
    """
    plain, facts = as_stored(file, False, axes, whole=True), embeddings.metadata(file)
    require_made(file, plain.digest, plain.root, model, folder)
    dim, kept = plain.index.d, kept_in(file) if smooth and axes is None else None
    has_smoothed = axes is None and embeddings.has_smoothed(file)
    named = axes or embeddings.axes_of(facts)
    as_named, whole = Setting(named or dim), Setting(dim, 1.0)
    start = kept or (whole if has_smoothed and smooth else as_named)
    settings = line(dim, named, has_smoothed)
    if len(plain) > MOST_ROWS:
        settings = [as_named, whole] if has_smoothed else [as_named]
    if start not in settings:
        settings = sorted([*settings, start], key=lambda one: (one.smoothed, -one.axes))
    return Knob(plain, as_stored(file, True) if has_smoothed else None, settings, start, file)
