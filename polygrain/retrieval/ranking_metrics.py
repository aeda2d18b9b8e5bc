"""R-Precision, MAP@R and Recall@1 of rankings.

R is the number of other images of the query's class. R-Precision is the share of its class among the R nearest. MAP@R
is the mean over i = 1..R of precision(i) where the i-th image is of its class, and of 0 where it is not (Musgrave et
al., 2020, 3.2). Recall@1 is 1 where the nearest image is of its class.
"""

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

NAMES = ("r_precision", "map_at_r", "recall_at_1")


def measure(hits: Bool[Tensor, "query rank"], relevant: Int64[Tensor, " query"]) -> Float64[Tensor, "metric query"]:
    """The metrics in the order of `NAMES`; NaN where R is 0.

    `hits` says of each rank whether the image there is of the query's class; `relevant` is R.
    """
    places = torch.arange(1, hits.shape[1] + 1, device=hits.device)
    counted = hits & (places <= relevant[:, None])
    correct = counted.cumsum(1, dtype=torch.float64)  # whole numbers, so nothing is rounded yet
    r_precision = correct[:, -1] / relevant
    # One after another: so the sum does not depend on how much deeper than R the ranking goes.
    map_at_r = correct.div_(places).mul_(counted).cumsum_(1)[:, -1] / relevant
    recall_at_1 = torch.where(relevant > 0, hits[:, 0].double(), torch.nan)
    return torch.stack([r_precision, map_at_r, recall_at_1])
