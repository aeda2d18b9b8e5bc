"""The 37 extractors of the published table (Risser-Maroix et al., Table 1), with its numbers, as `extractors.csv`.

`data` and `images_millions` are what each was trained on. `explained` is the share of variance that 256 components
keep. Four columns are aR@1 of concatenated layers, of PCA, and of the adaptation with sigma 1 and 15, and the spreads
that are printed with three of them. They were taken on 1,049 test pairs of Totally Looks Like without faces, in 20
random splits. Where `weights` is `file`, no library has the weights and a study names their file. Inputs are normalised
as each network's weights expect.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from polygrain.store.tables import read_csv
from polygrain.tll.extractors.config import Extractor

TABLE = Path(__file__).with_name("extractors.csv")
SCORES = ("concatenated", "pca", "sigma_1", "sigma_15")
PAIRS = 4199  # of TLL_obj
FACTORS = {1: 2.25, 5: 3.55, 20: 4.53}  # aR@k of clip_rn50x4 with sigma 15, over its concatenated layers


def rows() -> list[dict[str, str]]:
    """The table as it stands, a dictionary for each extractor."""
    return read_csv(TABLE)


def by_learning(measured: Mapping[str, float]) -> list[dict[str, Any]]:
    """For each way to learn from a data set, the number of extractors and the mean of each printed score.

    `ours` is the mean of what was `measured` of these extractors, NaN where nothing was, and `studies` of how many. In
    the order of the table.
    """
    groups: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows():
        groups.setdefault((row["learning"], row["data"]), []).append(row)
    lines = []
    for (learning, data), group in groups.items():
        ours = [measured[row["name"]] for row in group if row["name"] in measured]
        means = {score: fmean(float(row[score]) for row in group) for score in SCORES}
        line = {"learning": learning, "data": data, "extractors": len(group), "studies": len(ours)}
        lines.append(line | means | {"ours": fmean(ours) if ours else math.nan})
    return lines


def published() -> dict[str, Extractor]:
    """The extractors by the name that the table gives them."""
    return {row["name"]: extractor(row) for row in rows()}


def needs_file(name: str) -> bool:
    """Whether the weights of this published extractor are in no library."""
    return any((row["name"], row["weights"]) == (name, "file") for row in rows())


def extractor(row: dict[str, str]) -> Extractor:
    mean, std = (tuple(float(value) for value in row[key].split()) for key in ("mean", "std"))
    return Extractor(
        library=row["library"],
        network=row["network"],
        # CLIP's last layer is the projection that timm counts as the classifier.
        kwargs={name: int(value) for name, value in (argument.split("=") for argument in row["arguments"].split())},
        side=int(row["size"]),
        mean=mean,
        std=std,
        layers=row["layers"].split(),
    )
