"""How far a collection is smoothed by its neighbour graph, as far as its images without labels can tell.

The principal axes of the embeddings are dealt into two halves: two witnesses of the same images that share no number.
Some images are taken out as queries. By each half alone the others are smoothed, by a graph of their own, and searched.
What both halves answer is what the images have in common; a smoothing that spreads the mistakes of one half makes the
answers part. The **agreement** of a smoothing is the share of the `depth` nearest by one half that are among the
nearest by the other. Of those as good as the best, the strongest is taken: without labels it is unknown how broad the
classes are, and most gain by more.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from jaxtyping import Float32, Float64, Int64
from pydantic import Field

from polygrain.compute.principal import largest, principal_components
from polygrain.compute.vectors import unit_rows
from polygrain.config.schema import Count, Section
from polygrain.retrieval.neighbours import nearest
from polygrain.retrieval.smoothing import Smoothing, cosines, links, mixed_with_nearest, smoothed

# Rows that are compared, at most: more cost time and change little.
ROWS = 10_000
# A fifth of the rows, at most, are queries, and a fifth are nearest. Queries are drawn so many times.
SHARE, DRAWS = 5, 3
NONE = Smoothing(0.0, 1)


class SmoothingSettings(Section):
    """Which smoothings are compared, and how."""

    neighbours: Count = Field(description="an image is linked to those of its so many nearest whose nearest it is, too")
    strengths: list[Annotated[float, Field(ge=0, lt=1)]] = Field(
        max_length=20, description="compared: how far links reach; 0 leaves the images as they are"
    )
    mixed: list[Annotated[int, Field(ge=0, le=1000)]] = Field(
        min_length=1, max_length=20, description="compared: smoothed images that are mixed into a query; 0: none"
    )
    queries: Count = Field(description="images that are taken out as queries to compare, at most a fifth of them")
    depth: Count = Field(description="nearest images that are compared, at most a fifth of them")
    fewest: int = Field(ge=6, description="with fewer images nothing is smoothed; of 6, one asks and five are searched")
    errors: float = Field(ge=0, le=100, description="standard errors within which smoothings count as equal")


# What `polygrain embed` takes; params.yaml has the same.
SETTINGS = SmoothingSettings(
    neighbours=20, strengths=[0.5, 0.8, 0.9, 0.95], mixed=[0, 10], queries=400, depth=100, fewest=100, errors=2.0
)


@dataclass(frozen=True)
class Chosen:
    """A smoothing, why it was chosen, and the agreement of each that was compared."""

    smoothing: Smoothing
    why: str
    agreement: list[dict[str, float]]


def choose(
    vectors: Float32[np.ndarray, "row dim"],
    settings: SmoothingSettings = SETTINGS,
    seed: int = 0,
    *,
    is_whitened: bool = True,
) -> Chosen:
    """The smoothing whose agreement is highest; none for few rows. Rows are of unit length.

    `is_whitened`: the rows come from a model's last layer. Raw outputs are half-whitened to be compared, since one
    long axis would make one half a poor witness.
    """
    n = len(vectors)
    if n < settings.fewest:
        return Chosen(NONE, f"{n} images are too few to smooth by each other: {settings.fewest} are needed", [])
    generator = np.random.default_rng(seed)
    drawn = np.sort(generator.permutation(n)[:ROWS])
    halves = deal(vectors[drawn], is_whitened)
    parts = [compare(halves, generator.permutation(len(drawn)), settings) for _ in range(DRAWS)]
    shares = {one: np.concatenate([part[one] for part in parts]) for one in parts[0]}
    best = max(shares, key=lambda one: shares[one].mean())
    near = [one for one, values in shares.items() if differs(shares[best] - values) <= settings.errors]
    chosen = max(near, key=lambda one: (one.strength, one.mixed))
    table = [
        {"strength": one.strength, "mixed": one.mixed, "agreement": round(float(values.mean()), 4)}
        for one, values in shares.items()
    ]
    plain, reached = (100 * shares[one].mean() for one in (next(iter(shares)), chosen))
    why = (
        f"of {len(shares)} compared, the strongest whose agreement is within {settings.errors:g} standard errors of "
        f"the best ({reached:.1f} %; unsmoothed {plain:.1f} %)"
    )
    return Chosen(chosen if chosen.strength else NONE, why, table)


def differs(difference: Float64[np.ndarray, " query"]) -> float:
    """A mean difference in its standard errors; 0 where there is none."""
    spread = difference.std() / len(difference) ** 0.5
    return float(difference.mean() / spread) if spread > 0 else 0.0


def compare(
    halves: list[Float32[np.ndarray, "row _"]], order: Int64[np.ndarray, " row"], settings: SmoothingSettings
) -> dict[Smoothing, Float64[np.ndarray, " query"]]:
    """The agreement of each smoothing for each query; the first rows of the order are the queries."""
    asked, searched = np.split(order, [min(settings.queries, len(order) // SHARE)])
    neighbours = min(settings.neighbours, len(searched) - 1)
    depth = min(settings.depth, len(searched) // SHARE)
    answers: dict[Smoothing, list[Int64[np.ndarray, "query rank"]]] = {}
    for half in halves:
        queries, rows = half[asked], half[searched]
        ranked = nearest(rows, rows, neighbours, exclude_self=True)[1]
        graph = links(ranked, cosines(rows, ranked))
        for strength in dict.fromkeys([0.0, *settings.strengths]):
            result = unit_rows(smoothed(rows, graph, strength)) if strength else rows
            for count in settings.mixed if strength else [0]:
                one = Smoothing(strength, neighbours, min(count, len(rows)))
                answers.setdefault(one, []).append(nearest(mixed_with_nearest(queries, result, one), result, depth)[1])
    return {
        one: np.array([np.isin(first, second).mean() for first, second in zip(*pair, strict=True)])
        for one, pair in answers.items()
    }


def deal(vectors: Float32[np.ndarray, "row dim"], is_whitened: bool) -> list[Float32[np.ndarray, "row half"]]:
    """The coordinates on every other principal axis, and on the rest; rows of unit length."""
    axes = principal_components(vectors, max(2, min(largest(vectors), vectors.shape[1])))
    power = 0.0 if is_whitened else 0.25
    scales = np.where(axes.energies > 0, axes.energies, np.inf) ** -power
    turned = ((vectors - axes.mean) @ (axes.axes * scales)).astype(np.float32)
    return [unit_rows(np.ascontiguousarray(turned[:, start::2])) for start in (0, 1)]
