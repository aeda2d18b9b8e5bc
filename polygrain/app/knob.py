"""The knob of a search: places on a line from the very same thing to the same kind.

At the fine end plain rows are searched. Half and wholly smoothed ones follow, if a file has them. All come from stored
rows: no image is looked at again.
"""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from polygrain.app.gallery import EXACT_ROWS, Gallery, read, require_made
from polygrain.comparing.comparison import Comparison
from polygrain.store import embeddings

SHARES = (0.0, 0.5, 1.0)
# With more rows there are only plain and smoothed ones: an index of others is not made in a moment.
MOST_ROWS = EXACT_ROWS // 5


class Knob:
    """The places of a collection as shares of a smoothed row, the finest first, and the number of the first one shown.

    `file`: where a choice is kept.
    """

    def __init__(self, plain: Gallery, comparison: Comparison, shares: list[float], file: Path | None = None) -> None:
        self.plain, self.comparison, self.file = plain, comparison, file
        self.shares = sorted({*shares, comparison.share})
        self.start = self.shares.index(comparison.share)
        self.at = lru_cache(3)(self.make)

    @property
    def settings(self) -> list[str]:
        """The places in words."""
        return [str(replace(self.comparison, share=share)) for share in self.shares]

    def make(self, place: int) -> Gallery:
        """The collection as one place compares it."""
        comparison = replace(self.comparison, share=self.shares[place])
        if not comparison.share:
            return self.plain
        plain = self.plain
        smoothed = embeddings.read(self.file, smoothed=True).vectors
        rows = comparison.mixed(plain.vectors([*range(len(plain))]) if comparison.share < 1 else None, smoothed)
        return Gallery(plain.root, plain.paths, rows, plain.digest, comparison=comparison)

    def keep(self, place: int) -> None:
        """Writes a place into the file, where every search finds it."""
        self.comparison = replace(self.comparison, share=self.shares[place])
        embeddings.annotate(self.file, {"comparison": self.comparison.to_json()})
        self.start = place


def of_file(file: Path, model: str, folder: Path, smooth: bool = True) -> Knob:
    """The knob of what the model of this digest and folder made; ValueError where another one did.

    It begins with what was kept, at first with smoothed rows where there are any; with plain ones without `smooth`.
    """
    plain = read(file, smooth=False)
    require_made(file, plain.digest, plain.root, model, folder)
    if not embeddings.has_smoothed(file):
        return Knob(plain, plain.comparison, [0.0], file)
    comparison = Comparison.from_json(embeddings.metadata(file)["comparison"])
    shares = [0.0, 1.0] if len(plain) > MOST_ROWS else [*SHARES]
    return Knob(plain, comparison if smooth else plain.comparison, shares, file)
