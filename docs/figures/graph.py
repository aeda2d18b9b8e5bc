"""The main path as a graph, and what runs when a granularity is added to a finished run."""

from pathlib import Path

from docs.figures.style import GREEN, GREY, SOFT, arrow, bare, box, panels, save

PLACES = {
    "images": (0, 1.5),
    "encoder": (0, 0.2),
    "resolution": (1.9, 0.2),
    "features": (1.9, 1.5),
    "seeds": (3.8, 2.4),
    "knn_graph": (3.8, 0.2),
    "pseudo_labels\n@k64": (5.8, 3.4),
    "pseudo_labels\n@k128": (5.8, 2.4),
    "pseudo_labels\n@k512": (5.8, 1.4),
    "adaptor\n@k64": (7.8, 3.4),
    "adaptor\n@k128": (7.8, 2.4),
    "adaptor\n@k512": (7.8, 1.4),
    "refreshed_graph": (9.0, 0.2),
    "fusion\n@neighbour": (9.8, 2.0),
    "evaluation": (11.7, 2.0),
    "report": (13.4, 2.0),
}
EDGES = [
    ("images", "features"),
    ("images", "resolution"),
    ("encoder", "resolution"),
    ("features", "seeds"),
    ("features", "knn_graph"),
]
for _k in ("k64", "k128", "k512"):
    _labels, _adaptor = f"pseudo_labels\n@{_k}", f"adaptor\n@{_k}"
    EDGES += [("seeds", _labels), (_labels, _adaptor), (_adaptor, "fusion\n@neighbour")]
EDGES += [("fusion\n@neighbour", "evaluation"), ("evaluation", "report")]
NEW = ("pseudo_labels\n@k512", "adaptor\n@k512", "refreshed_graph", "fusion\n@neighbour", "evaluation", "report")


def draw(target: Path) -> None:
    figure, (axes,) = panels(11, 3.0, 1)
    axes.set(xlim=(-0.9, 14.2), ylim=(-0.5, 4.1))
    bare(axes)
    for start, end in EDGES:
        (x, y), (u, v) = PLACES[start], PLACES[end]
        arrow(axes, (x + 0.72, y), (u - 0.74, v), GREEN if end in NEW else GREY)
    arrow(axes, (1.9, 0.58), (1.9, 1.12))
    arrow(axes, (4.52, 0.2), (8.06, 0.2), GREEN)
    arrow(axes, (8.0, 1.02), (8.5, 0.58), GREEN)
    arrow(axes, (9.5, 0.58), (9.8, 1.62), GREEN)
    for name, (x, y) in PLACES.items():
        box(axes, x, y, name, GREEN if name in NEW else GREY, 1.42, 0.72)
    axes.text(0.0, 3.3, "green: what runs when k = 512 is added", color=GREEN, ha="left", fontweight="bold")
    axes.text(0.0, 2.9, "grey: restored, nothing to do", color=SOFT, ha="left")
    save(figure, target)
