"""R-Precision, MAP@R and Recall@1 of rankings.

With R the number of other images of the query's class: R-Precision is the share of its class among the R nearest,
MAP@R the mean over i = 1..R of precision(i) where the i-th is of its class and 0 where it is not (Musgrave et al.,
2020, 3.2).
"""

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor


def measure(hits: Bool[Tensor, "query rank"], relevant: Int64[Tensor, " query"]) -> Float64[Tensor, "metric query"]:
    """The three, in this order, from what is of the query's class in ranked order; NaN where R is 0."""
    places = torch.arange(1, hits.shape[1] + 1, device=hits.device)
    counted = hits & (places <= relevant[:, None])
    precision = counted.cumsum(1) / places.double()
    r_precision = counted.sum(1) / relevant.double()
    map_at_r = (precision * counted).sum(1) / relevant.double()
    recall_at_1 = torch.where(relevant > 0, hits[:, 0].double(), torch.nan)
    return torch.stack([r_precision, map_at_r, recall_at_1])
