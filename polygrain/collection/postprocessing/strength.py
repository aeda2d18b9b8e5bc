"""The strength of a collection's smoothing, chosen by its images without labels.

The principal axes of the embeddings are split into two halves: independent views of the same images.
Some images are taken out as queries. Each half alone smooths the others by its own graph, and searches them. Answers
that both halves give come from the images; a smoothing that spreads the mistakes of one half makes the answers differ.
The **agreement** of a smoothing is the share of the `DEPTH` nearest by one half that are among the nearest by the
other. Among the smoothings as good as the best, the strongest is taken: most collections gain by more.

If it is known how many images are alike, that number is the depth, and graphs of several sizes up to it are compared;
below `FEWEST_ALIKE` nothing is smoothed. Otherwise the depth is `DEPTH`, the graph has `neighbours`, and a smoothing
that loses agreement among the nearest `guard` is excluded: it may suit broad classes and lose groups of six images.

Of a large collection whole neighbourhoods are compared: a random sample would have fewer images of each kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from jaxtyping import Float32, Float64, Int64
from pydantic import Field

from polygrain.collection.postprocessing.diffusion import Smoothing, cosines, links, smoothed
from polygrain.compute.principal import Principal, largest, principal_components
from polygrain.compute.vectors import unit_rows
from polygrain.config.schema import Count, Section
from polygrain.retrieval.neighbours import nearest

# With fewer images nothing is smoothed.
FEWEST_SMOOTHED = 100
# Nearest images that are compared, at most a fifth of them.
DEPTH = 100
# Standard errors within which smoothings count as equal.
ERRORS = 2.0
# Rows compared at most. Larger collections are sampled: the neighbourhoods of a few drawn rows.
MOST_ROWS, CENTRES = 10_000, 5
# At most a fifth of the rows are queries, and a fifth are their nearest. The draw is repeated.
SHARE, DRAWS = 5, 3
# In smaller groups most neighbours are strangers: at 3, smoothing lost a point with two encoders (docs/results.md).
FEWEST_ALIKE = 6
NONE = Smoothing()
SHARPER = "To compare more exactly, say about how many images show the same thing: `--alike`, or `choice.alike`"


class SmoothingSettings(Section):
    """Which smoothings are compared, and how."""

    neighbours: Count = Field(description="nearest images to which an image may be linked; a link is mutual")
    strengths: list[Annotated[float, Field(ge=0, lt=1)]] = Field(
        max_length=20, description="strengths that are compared: how far links reach; 0: no smoothing"
    )
    queries: Count = Field(description="images that are taken out as queries to compare, at most a fifth of them")
    graphs: list[Count] = Field(
        min_length=1, max_length=20, description="numbers of neighbours that are compared for a task of `choice.alike`"
    )
    guard: Count = Field(description="nearest images on which smoothing may not lower the agreement, for other tasks")


# Of vectors, and of a folder that is no task. params.yaml has the same for tasks, where they can be changed.
SETTINGS = SmoothingSettings(
    neighbours=20, strengths=[0.5, 0.8, 0.9, 0.95], queries=400, graphs=[5, 10, 20, 40], guard=10
)


@dataclass(frozen=True)
class Chosen:
    """A smoothing, and why it was chosen."""

    smoothing: Smoothing
    why: str


def choose(
    vectors: Float32[np.ndarray, "row dim"],
    settings: SmoothingSettings = SETTINGS,
    seed: int = 0,
    *,
    alike: int | None = None,
) -> Chosen:
    """The smoothing whose agreement is highest; none for few rows, or few alike. Rows are of unit length.

    `alike`: about how many rows show the same thing, if known.
    """
    n = len(vectors)
    if n < FEWEST_SMOOTHED:
        return Chosen(NONE, f"there are {n} images, and smoothing needs {FEWEST_SMOOTHED} or more")
    if alike and alike < FEWEST_ALIKE:
        return Chosen(NONE, f"{alike} images show the same thing, and smoothing needs {FEWEST_ALIKE} or more")
    generator = np.random.default_rng(seed)
    axes = axes_of(vectors[generator.permutation(n)[:MOST_ROWS]] if n > MOST_ROWS else vectors)
    counts = [settings.neighbours]
    if alike:
        # Neighbours beyond the size of a group are of other kinds.
        counts = [count for count in settings.graphs if count <= alike] or [min(settings.graphs)]
    depths = [alike] if alike else [DEPTH, settings.guard]
    parts = []
    for _ in range(DRAWS):
        rows = neighbourhoods(vectors, settings.queries, generator)
        parts.append(compare(deal(vectors[rows], axes), settings, counts, depths))
    shares = {one: np.concatenate([part[one] for part in parts], 1) for one in parts[0]}
    unsmoothed = next(iter(shares.values()))
    # At the last depth: the guard's, where one is compared.
    safe = {one: of[0] for one, of in shares.items() if alike or differs(unsmoothed[-1] - of[-1]) <= ERRORS}
    best = max(safe, key=lambda one: safe[one].mean())
    near = [one for one, values in safe.items() if differs(safe[best] - values) <= ERRORS]
    chosen = max(near, key=lambda one: (one.strength, -one.neighbours))
    plain, reached = (100 * shares[one][0].mean() for one in (next(iter(shares)), chosen))
    measure = f"two halves of each vector agree on {plain:.1f} % of the nearest images"
    if not chosen.strength:
        why = f"{measure}, and no smoothing raises that"
        return Chosen(NONE, why if alike else f"{why}. {SHARPER}")
    why = (
        f"{measure}, and on {reached:.1f} % when smoothed; no stronger smoothing comes within {ERRORS:g} standard "
        "errors of the best"
    )
    return Chosen(chosen, why)


def neighbourhoods(
    vectors: Float32[np.ndarray, "row dim"], queries: int, generator: np.random.Generator
) -> Int64[np.ndarray, " part"]:
    """All rows in a random order, or of very many the nearest to a few drawn rows; the first rows are the queries.

    Queries are drawn from the nearer half of each neighbourhood, so that it holds their neighbours.
    """
    n = len(vectors)
    if n <= MOST_ROWS:
        return generator.permutation(n)
    centres = generator.choice(n, CENTRES, replace=False)
    found = nearest(vectors[centres], vectors, MOST_ROWS // CENTRES)[1]
    inner = generator.permutation(np.unique(found[:, : found.shape[1] // 2]))[:queries]
    return np.concatenate([inner, generator.permutation(np.setdiff1d(found, inner))])


def differs(difference: Float64[np.ndarray, " query"]) -> float:
    """A mean difference in its standard errors; 0 where there is none."""
    spread = difference.std() / len(difference) ** 0.5
    return float(difference.mean() / spread) if spread > 0 else 0.0


def compare(
    halves: list[Float32[np.ndarray, "row _"]],
    settings: SmoothingSettings,
    counts: Sequence[int],
    depths: Sequence[int],
) -> dict[Smoothing, Float64[np.ndarray, "depth query"]]:
    """The agreement of each smoothing at each depth for each query; the first rows are the queries.

    `counts`: neighbours in the graphs that are compared. Unsmoothed comes first.
    """
    asked = min(settings.queries, len(halves[0]) // SHARE)
    searched = len(halves[0]) - asked
    counts = sorted({min(count, searched - 1) for count in counts})
    depths = [max(1, min(depth, DEPTH, searched // SHARE)) for depth in depths]
    tried = [Smoothing(0.0, counts[0])]
    tried += [Smoothing(one, count) for count in counts for one in dict.fromkeys(settings.strengths) if one]
    answers = [answered(half[:asked], half[asked:], tried, max(depths)) for half in halves]
    return {
        one: np.array(
            [[np.isin(*pair).mean() for pair in zip(*(a[one][:, :d] for a in answers), strict=True)] for d in depths]
        )
        for one in tried
    }


def answered(
    queries: Float32[np.ndarray, "query half"],
    rows: Float32[np.ndarray, "row half"],
    tried: Sequence[Smoothing],
    depth: int,
) -> dict[Smoothing, Int64[np.ndarray, "query rank"]]:
    """The nearest rows by each smoothing; each graph is made once."""
    answers, graphs = {}, {}
    ranked = nearest(rows, rows, max(one.neighbours for one in tried), exclude_self=True)[1]
    for one in tried:
        result = rows
        if one.strength:
            if one.neighbours not in graphs:
                own = ranked[:, : one.neighbours]
                graphs[one.neighbours] = links(own, cosines(rows, own))
            result = unit_rows(smoothed(rows, graphs[one.neighbours], one.strength))
        answers[one] = nearest(queries, result, depth)[1]
    return answers


def axes_of(vectors: Float32[np.ndarray, "row dim"]) -> Principal:
    """All principal axes of the vectors."""
    return principal_components(vectors, max(2, min(largest(vectors), vectors.shape[1])))


def deal(vectors: Float32[np.ndarray, "row dim"], axes: Principal) -> list[Float32[np.ndarray, "row half"]]:
    """The coordinates on every other principal axis, and on the rest; rows of unit length.

    They are half-whitened: otherwise one long axis would dominate its half.
    """
    scales = np.where(axes.energies > 0, axes.energies, np.inf) ** -0.25
    turned = ((vectors - axes.mean) @ (axes.axes * scales)).astype(np.float32)
    return [unit_rows(np.ascontiguousarray(turned[:, start::2])) for start in (0, 1)]
