"""Split-half agreement: the gain of centring and of the layer, measured by vectors without labels.

The principal axes of the vectors are split into two halves: independent views of the same images. Each
learns its own layer. The agreement of a form is the share of the nearest by one half that are among the nearest by the
other.
"""

import numpy as np
from jaxtyping import Float32, Float64

from polygrain.clustering.sampled import draw_cells
from polygrain.compute.principal import largest, principal_components
from polygrain.compute.vectors import unit_rows
from polygrain.fisher.estimator import ClusterWhitening
from polygrain.retrieval.neighbours import nearest

# Most rows, most queries among them, and the nearest that are compared where the number of alike images is unknown.
MOST_ROWS, QUERIES, DEPTH = 2_000, 400, 10


def agreements(
    rows: Float32[np.ndarray, "row dim"], alike: int | None = None, seed: int = 0
) -> dict[str, Float64[np.ndarray, " query"]]:
    """The agreement of rows of unit length as they are, centred, and behind a layer, query by query."""
    drawn = rows[draw_cells(rows, MOST_ROWS, seed)] if len(rows) > MOST_ROWS else rows
    queries = np.random.default_rng(seed).permutation(len(drawn))[:QUERIES]
    turned = drawn @ principal_components(drawn, largest(drawn)).axes.astype(np.float32)
    depth, answers = min(alike or DEPTH, len(drawn) - 1), []
    for start in (0, 1):
        half = unit_rows(np.ascontiguousarray(turned[:, start::2]))
        forms = {
            "as they are": half,
            "centred": unit_rows(half - half.mean(0)),
            "layer": ClusterWhitening(alike, random_state=seed).fit_transform(half),
        }
        answers.append({name: others(form, queries, depth) for name, form in forms.items()})
    return {name: shared(*(one[name] for one in answers)) for name in answers[0]}


def others(rows: Float32[np.ndarray, "row dim"], queries: np.ndarray, depth: int) -> np.ndarray:
    """The nearest of each query, but itself."""
    found = nearest(np.ascontiguousarray(rows[queries]), np.ascontiguousarray(rows), depth + 1)[1]
    return np.array([[row for row in one if row != query][:depth] for query, one in zip(queries, found, strict=True)])


def shared(first: np.ndarray, second: np.ndarray) -> Float64[np.ndarray, " query"]:
    """The share of numbers that two rows have in common."""
    return np.array([np.isin(*pair).mean() for pair in zip(first, second, strict=True)])
