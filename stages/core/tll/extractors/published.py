"""The 36 extractors of the published table (Risser-Maroix et al., Table 1), with its numbers, as `extractors.csv`.

`explained` is the share of variance that 256 components keep. The last four columns are aR@1 of concatenated layers, of
PCA, and of the adaptation with sigma 1 and 15. They were taken on 1,049 test pairs of Totally Looks Like without faces.
Networks that neither timm nor torchvision provides have the library "none". Inputs are normalised as each network's
weights expect.
"""

import csv
from pathlib import Path

from stages.core.tll.extractors.config import Extractor

TABLE = Path(__file__).with_name("extractors.csv")
SCORES = ("concatenated", "pca", "sigma_1", "sigma_15")


def rows() -> list[dict[str, str]]:
    """The table as it stands, a dictionary for each extractor."""
    with TABLE.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def published() -> dict[str, Extractor]:
    """The extractors that timm or torchvision provides, by the name the table gives them."""
    return {row["name"]: extractor(row) for row in rows() if row["library"] != "none"}


def extractor(row: dict[str, str]) -> Extractor:
    mean, std = (tuple(float(value) for value in row[key].split()) for key in ("mean", "std"))
    return Extractor(
        library=row["library"],
        network=row["network"],
        # CLIP's last layer is the projection that timm counts as the classifier.
        kwargs={"num_classes": int(row["num_classes"])} if row["num_classes"] else {},
        side=int(row["size"]),
        mean=mean,
        std=std,
        layers=row["layers"].split(),
    )
