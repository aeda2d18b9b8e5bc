"""How fine an embedding tells images apart: its last layer, and how many of its axes each task uses, the grain.

The axes of a whitening stand in the order of their variance, so the first numbers of an embedding are one, too. Few
axes tell kinds apart, many the very same thing; and the less the axes are scaled, the more the strongest count. No
image says which of these is meant. One number does: about how many images show the same thing (`alike`).

Every other axis of an embedding is one witness, the axes between are a second one that shares no number with it. The
**agreement** of a layer and a number of axes is the share of an image's nearest by the one that are among its nearest
by the other, of so many nearest as are alike. The layer of the highest agreement over tasks is taken, and for each task
its number of axes of the highest. Where nobody says how many are alike, it is the gentlest layer and a middle grain.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32
from pydantic import Field

from polygrain.compute.blocks import Rows, blocks
from polygrain.compute.vectors import unit_rows
from polygrain.config.schema import Count, Section, Width
from polygrain.retrieval import whitening
from polygrain.retrieval.neighbours import nearest, without_self

# Images of a task that ask, and that there must be; rows that are read at once.
ASKED, FEWEST, BLOCK = 400, 12, 16_384
# What `polygrain embed` compares; new profiles have the same.
AXES = (24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


class GrainSettings(Section):
    """Which layers and numbers of axes are compared."""

    layers: list[whitening.Kind] = Field(min_length=1, max_length=4, description="compared, the gentlest first")
    axes: list[Width] = Field(
        max_length=50, description="compared, the leading ones of one embedding; []: embeddings are used whole"
    )
    middle: Width = Field(description="axes, where nobody says how many images are alike")
    images: Count = Field(description="of each task, at most, that are compared")


@dataclass(frozen=True)
class Grains:
    """The last layer, how many of its axes each task uses, and the agreement of all that were compared, by task."""

    layer: whitening.Kind
    axes: Mapping[str, int]
    agreement: Mapping[str, Mapping[tuple[whitening.Kind, int], float]]

    @property
    def why(self) -> str:
        """In a sentence."""
        used = ", ".join(f"{task} {axes}" for task, axes in self.axes.items())
        if not self.agreement:
            return f"Nobody said how many images are alike, so each task uses a middle number of axes: {used}."
        return f"By the number of images that are alike, the halves of the axes agree most with these of them: {used}."

    def record(self) -> dict[str, Any]:
        """As JSON takes it."""
        rows = {
            task: [{"layer": layer, "axes": axes, "agreement": round(value, 4)} for (layer, axes), value in of.items()]
            for task, of in self.agreement.items()
        }
        return {"layer": self.layer, "axes": dict(self.axes), "agreement": rows}


def fitted(outputs: Rows, settings: GrainSettings) -> dict[whitening.Kind, whitening.Whitening]:
    """Each layer, fitted to outputs `row dim`; {} where these are all equal."""
    layers = whitening.fit_all(outputs, [max(settings.axes)], settings.layers) if outputs.shape[0] > 1 else {}
    return {kind: layer for (kind, _), layer in layers.items()}


def cut(vectors: Float32[np.ndarray, "row dim"], axes: int | None) -> Float32[np.ndarray, "row axis"]:
    """The first axes of embeddings, of unit length again; all of them for None."""
    return vectors if axes is None or axes >= vectors.shape[1] else unit_rows(vectors[:, :axes])


def choose(
    outputs: Rows,
    tasks: np.ndarray,
    layers: Mapping[whitening.Kind, whitening.Whitening],
    alike: Mapping[str, int],
    settings: GrainSettings,
    seed: int,
) -> Grains:
    """The layer and the grain of each task, of outputs `row dim` and the layers fitted to them.

    `alike`: about how many images show the same thing, of the tasks for which that is known.
    """
    width = min(one.projection.shape[1] for one in layers.values())
    tried = sorted({min(axes, width) for axes in settings.axes})
    grains = dict.fromkeys(dict.fromkeys(tasks), min(settings.middle, width))
    agreement = {}
    for task in grains:
        own = np.flatnonzero(tasks == task)
        if task in alike and len(own) >= FEWEST:
            agreement[task] = compare(outputs, own, layers, tried, alike[task], settings.images, seed)
    if not agreement:
        return Grains(settings.layers[0], grains, {})
    layer = max(layers, key=lambda kind: np.mean([best_of(kind, values) for values in agreement.values()]))
    for task, values in agreement.items():
        grains[task] = max(tried, key=lambda axes: values[layer, axes])
    return Grains(layer, grains, agreement)


def best_of(kind: whitening.Kind, values: Mapping[tuple[whitening.Kind, int], float]) -> float:
    """The highest agreement of a layer, in deviations from the mean of all that were compared on its task."""
    compared, best = [*values.values()], max(value for (one, _), value in values.items() if one == kind)
    return float((best - np.mean(compared)) / (np.std(compared) or 1.0))


def compare(
    outputs: Rows,
    rows: np.ndarray,
    layers: Mapping[whitening.Kind, whitening.Whitening],
    tried: Sequence[int],
    alike: int,
    most: int,
    seed: int,
) -> dict[tuple[whitening.Kind, int], float]:
    """The agreement of each layer and number of axes on some rows, at most so many. Of drawn rows fewer are alike."""
    drawn = np.random.default_rng(seed).permutation(rows)[:most]
    given = some(outputs, drawn)
    shares: dict[tuple[whitening.Kind, int], float] = {}
    for kind, layer in layers.items():
        vectors = whitening.apply(layer, given)
        shares |= {(kind, axes): agreement(vectors, axes, alike * len(drawn) / len(rows)) for axes in tried}
    return shares


def agreement(vectors: Float32[np.ndarray, "row dim"], axes: int, alike: int | float) -> float:
    """The share of the nearest others that the two halves of so many leading axes have in common.

    The first rows ask, for so many nearest as are alike, or a third of all rows.
    """
    asked, depth = np.arange(min(ASKED, len(vectors))), max(1, min(round(alike), len(vectors) // 3))
    halves = [unit_rows(np.ascontiguousarray(vectors[:, start:axes:2])) for start in (0, 1)]
    found = [without_self(nearest(half[asked], half, depth + 1)[1], asked, depth) for half in halves]
    return float(np.mean([np.isin(*pair).mean() for pair in zip(*found, strict=True)]))


def axes_for(vectors: Float32[np.ndarray, "row dim"], tried: Sequence[int], alike: int, seed: int = 0) -> int:
    """The number of axes whose halves agree most, of embeddings whose axes stand in the order of their variance."""
    shuffled = vectors[np.random.default_rng(seed).permutation(len(vectors))]
    return max(tried, key=lambda axes: agreement(shuffled, axes, alike))


def some(outputs: Rows, rows: np.ndarray) -> Float32[np.ndarray, "row dim"]:
    """These rows, in their order, of rows that are read by slices."""
    given = np.empty((len(rows), outputs.shape[1]), np.float32)
    for part in blocks(outputs.shape[0], BLOCK):
        places = np.flatnonzero((rows >= part.start) & (rows < part.stop))
        if len(places):
            given[places] = np.asarray(outputs[part])[rows[places] - part.start]
    return given
