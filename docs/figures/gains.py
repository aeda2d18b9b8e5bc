"""GSP's Fig. 6: what GSP gains over average pooling, in percent of MAP@R, by the printed numbers of Table 2."""

from pathlib import Path

import numpy as np

from docs.figures.style import BLUE, GREEN, panels, save
from polygrain.gsp.report.published import read

LOSSES = ("xbm", "c2", "multi_similarity", "triplet", "proxy_nca_pp", "proxy_anchor")
NAMES = ("XBM", "C2", "MS", "Triplet", "PNCA", "PAnchor")
IMAGES = {"products": "Products", "inshop": "In-shop", "cub": "CUB", "cars": "Cars"}


def gains() -> dict[tuple[str, str, str], float]:
    """{(images, loss, dimensions): percent}."""
    rows = [row for row in read() if row["table"] == "2" and row["metric"] == "map_at_r"]
    gap, gsp = (
        {(row["images"], row["loss"], row["dim"]): float(row["percent"]) for row in rows if row["pooling"] == pooling}
        for pooling in ("gap", "gsp")
    )
    return {key: 100 * (percent / gap[key] - 1) for key, percent in gsp.items()}


def draw(target: Path) -> None:
    found = gains()
    figure, axes = panels(11, 2.6, len(IMAGES), sharey=True)
    for panel, (images, title) in zip(axes, IMAGES.items(), strict=True):
        for shift, (dim, colour) in zip((-0.2, 0.2), (("512", BLUE), ("128", GREEN)), strict=True):
            heights = [found[images, loss, dim] for loss in LOSSES]
            panel.bar(np.arange(len(LOSSES)) + shift, heights, 0.4, color=colour, label=f"{dim}-D")
        panel.set_xticks(range(len(LOSSES)), NAMES, rotation=45)
        panel.set_title(title)
    axes[0].set_ylabel("gain of MAP@R, %")
    axes[0].legend(fontsize=8, frameon=False)
    save(figure, target)
