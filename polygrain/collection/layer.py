"""In place of a model: the layer that vectors of any encoder learn from their own clusters."""

import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from jaxtyping import Float32
from torch import Tensor

from polygrain.collection.embedding import Given
from polygrain.collection.file import Facts, File, table_of
from polygrain.collection.maker import Maker
from polygrain.collection.postprocessing.comparison import Comparison, directions
from polygrain.collection.postprocessing.diffusion import linked
from polygrain.collection.postprocessing.strength import FEWEST_SMOOTHED, NONE, choose
from polygrain.encoder.model import Model
from polygrain.fisher.estimator import ClusterWhitening, load, save
from polygrain.fisher.split_half import DEPTH, agreements
from polygrain.runner.progress import progress
from polygrain.sources.folder import printable
from polygrain.store.drafts import drafted

log = logging.getLogger(__name__)


class Layer(Maker):
    """A layer behind any encoder, learnt or in a file, which is read when it is first asked.

    What it embeds are vectors of this encoder. ValueError where the file is gone or holds another layer.
    """

    def __init__(self, given: ClusterWhitening | Path, digest: str = "") -> None:
        super().__init__(None, digest=digest if isinstance(given, Path) else digest_of(given))
        self.given, self.name = given, f"layer {self.digest}"

    @cached_property
    def network(self) -> Model:
        raise ValueError("the collection is of vectors: it has a layer, and no network that takes images")

    @cached_property
    def learnt(self) -> ClusterWhitening:
        layer = load(self.given) if isinstance(self.given, Path) else self.given
        if (found := digest_of(layer)) != self.digest:
            raise ValueError(f"{self.given} is layer {found}, the rows are behind {self}: smooth the vectors anew")
        return layer

    def embed(self, given: Given | Iterable[Given] | np.ndarray | Tensor) -> Float32[np.ndarray, "query dim"]:
        if not isinstance(given, np.ndarray | Tensor):
            raise ValueError("the collection is of vectors: ask in Python, with vectors of the same encoder")
        rows, dim = directions(given, "queries"), len(self.learnt.mean_)
        if rows.shape[1] != dim:
            raise ValueError(f"the collection is of vectors of {dim} numbers, the queries have {rows.shape[1]}")
        return self.learnt.transform(rows)

    @contextmanager
    def kept_beside(self, file: Path) -> Iterator[None]:
        with drafted(file_of(file)) as draft:
            save(self.learnt, draft)
            yield


def file_of(file: Path) -> Path:
    """The file of the layer that belongs to a file of rows of any kind."""
    return file.with_name(f"{file.name}.layer.npz")


def digest_of(layer: ClusterWhitening) -> str:
    """The first 16 hex digits of SHA-256 over the arrays of a layer."""
    return hashlib.sha256(layer.mean_.tobytes() + layer.projection_.tobytes()).hexdigest()[:16]


def learn(vectors: np.ndarray | Tensor, names: Iterable[object] | None, alike: int | None) -> tuple[File, Layer]:
    """The rows of vectors, in memory, and the layer that they are behind; too few are left as they are.

    Neighbours come from the input vectors, not from the layer's output, which is fitted to its own clusters.
    """
    rows, smoothing = directions(vectors), NONE
    n, paths = len(rows), named(names, len(rows))
    if alike is not None and alike < 2:
        raise ValueError(f"alike is {alike}; allowed is 2 or more: about how many vectors show the same thing")
    if n < FEWEST_SMOOTHED:
        log.info("the %d vectors stay as they are: learning needs %d or more", n, FEWEST_SMOOTHED)
        layer = ClusterWhitening().fit(rows[:1])  # of one row it learns nothing
    else:
        layer, chosen = ClusterWhitening(alike).fit(rows), choose(rows, alike=alike)
        smoothing = chosen.smoothing
        if log.isEnabledFor(logging.INFO):
            shares = [f"{name} {100 * of.mean():.1f} %" for name, of in agreements(rows, alike).items()]
            log.info("two halves of each vector share of the %d nearest: %s", alike or DEPTH, ", ".join(shares))
        log.info("%s: %s", smoothing, chosen.why)
    plain, shown = layer.transform(rows), partial(progress, description="smooth", unit="part")
    columns: dict[str, list[str] | np.ndarray] = {"path": paths, "searched": plain}
    if smoothing.strength:
        columns |= {"searched": linked(rows, plain, smoothing, shown), "plain": plain}
    made_by = Layer(layer)
    facts = Facts(made_by.digest, plain.shape[1], Comparison((), smoothing, alike), alike=alike, count=n)
    return File(Path("memory"), table_of(columns, facts)), made_by


def named(names: Iterable[object] | None, count: int) -> list[str]:
    """A name of its own for each row, by default its number; ValueError where names cannot be told apart or kept."""
    found = [str(name) for name in (range(count) if names is None else names)]
    if len(found) != count:
        raise ValueError(f"{count:,} vectors have {len(found):,} names: give a name for each")
    name, times = Counter(found).most_common(1)[0]
    if times > 1:
        raise ValueError(f"{times} vectors have the name {name!r:.200}: give each a name of its own")
    if wrong := [name for name in found if not name or printable(name) != name]:
        raise ValueError(f"{wrong[0]!a:.200} is no name: give a text in UTF-8")
    return found
