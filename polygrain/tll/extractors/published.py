"""The 37 extractors of the published table (Risser-Maroix et al., Table 1), with its numbers, as `extractors.csv`.

`explained` is the share of variance that 256 components keep. The last four columns are aR@1 of concatenated layers, of
PCA, and of the adaptation with sigma 1 and 15. They were taken on 1,049 test pairs of Totally Looks Like without faces.
The paper prints a spread over 20 random splits with each; only their ranges are here (SPREADS). Where `weights` is
`file`, no library has the weights and a study names their file. A network that neither timm nor torchvision provides
has the library "none". Inputs are normalised as each network's weights expect.
"""

import csv
from pathlib import Path

from polygrain.tll.extractors.config import Extractor

TABLE = Path(__file__).with_name("extractors.csv")
SCORES = ("concatenated", "pca", "sigma_1", "sigma_15")
# Smallest and largest of the spreads printed with the scores; PCA has none. The caption says standard deviation. Those
# of concatenated layers are what splits of 1,049 of 4,199 pairs must differ by. Those after the adaptation are .4 of
# that, and look like 95 % intervals of the mean over 20 runs.
SPREADS = {"concatenated": (0.0050, 0.0122), "sigma_1": (0.0024, 0.0068), "sigma_15": (0.0032, 0.0071)}
FACTORS = {1: 2.25, 5: 3.55, 20: 4.53}  # aR@k of clip_rn50x4 with sigma 15, over its concatenated layers


def rows() -> list[dict[str, str]]:
    """The table as it stands, a dictionary for each extractor."""
    with TABLE.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def published() -> dict[str, Extractor]:
    """The extractors that timm or torchvision provides, by the name the table gives them."""
    return {row["name"]: extractor(row) for row in rows() if row["library"] != "none"}


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
