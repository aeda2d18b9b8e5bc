"""R-Precision over the seconds of a thousand images, for networks and sides: docs/results/ladder.csv."""

import csv
from collections import defaultdict
from pathlib import Path

from docs.figures.style import COLOURS, panels, save

TABLE = Path(__file__).parents[1] / "results/ladder.csv"
TITLES = {"large": "3 tasks, up to 336 px", "tasks": "5 tasks, 160 px"}


def draw(target: Path) -> None:
    with TABLE.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["task"] == "mean"]
    figure, axes = panels(9, 3.2, len(TITLES))
    for panel, (images, title) in zip(axes, TITLES.items(), strict=True):
        points = defaultdict(list)
        for row in rows:
            if row["set"] == images:
                points[row["encoder"]].append((int(row["side"]), float(row["seconds"]), float(row["smoothed"])))
        for (name, own), colour in zip(sorted(points.items()), COLOURS, strict=False):
            sides, seconds, percent = zip(*sorted(own), strict=True)
            panel.plot(seconds, percent, "o-", color=colour, label=name.capitalize(), markersize=4)
            for place in zip(sides, seconds, percent, strict=True):
                panel.annotate(str(place[0]), place[1:], (3, -9), textcoords="offset points", fontsize=7, color=colour)
        panel.set_xscale("log")
        panel.set_xlabel("seconds for a thousand images, one thread")
        panel.set_title(title)
    axes[0].set_ylabel("R-Precision, smoothed, %")
    axes[0].legend(fontsize=8, frameon=False, loc="lower right")
    save(figure, target)
