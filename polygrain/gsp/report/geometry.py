"""Embeddings on their two longest axes, with the hull of each class (GSP, Fig. 3a)."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial import ConvexHull, QhullError

from polygrain.compute.principal import principal_components
from polygrain.report import figures
from polygrain.report.figures import HEIGHT, WIDTH

MARGIN = 12
Point = tuple[float, float]


def hull(points: Sequence[Point]) -> list[Point]:
    """The corners of the convex hull in order; all points where they lie on one line."""
    try:
        return [points[i] for i in ConvexHull(points).vertices]
    except QhullError:
        return list(points)


def geometry(
    title: str, vectors: Float[np.ndarray, "row dim"], labels: Int[np.ndarray, " row"], styles: Sequence[str]
) -> dict[str, str]:
    """A drawing of every row as a dot, in one scale on both axes, and of each class's hull."""
    principal = principal_components(vectors, 2)
    flat = (vectors - principal.mean) @ principal.axes
    low, span = flat.min(0), (flat.max(0) - flat.min(0)).clip(1e-12)
    scale = min((WIDTH - 2 * MARGIN) / span[0], (HEIGHT - 2 * MARGIN) / span[1])
    places = MARGIN + scale * (flat - low)
    parts = []
    for i, label in enumerate(np.unique(labels)):
        own = [(float(x), float(y)) for x, y in places[labels == label]]
        style = f"s-{styles[i % len(styles)]}"
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in hull(own))
        parts.append(f'<polygon class="band {style}" points="{corners}"><title>class {label}</title></polygon>')
        parts += [f'<circle class="dot {style}" cx="{x:.1f}" cy="{y:.1f}" r="2"/>' for x, y in own]
    share = 100 * float(principal.shares[:2].sum())
    text = f"{title}: two axes with {share:.0f} % of the variance"
    return {"title": text, "drawing": figures.frame(f"{text}; {len(np.unique(labels))} classes", WIDTH, HEIGHT, parts)}
