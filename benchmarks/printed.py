"""Numbers that need no run: means of TLL's printed Table 1, and the parameters of MPCL's heads, a JSON line each.

The error of a mean is its standard error over extractors that learned in the same way from the same data.
"""

import json
from statistics import fmean, stdev

from polygrain.mpcl.pretraining.projectors import MultiProjector
from polygrain.tll.extractors import published

RESNET50 = 23_508_032  # parameters without its classifier
HEADS = (1, 2, 4, 8)


def recall_by_learning() -> list[dict]:
    """aR@1 with sigma = 15, in percent."""
    groups: dict[str, list[float]] = {}
    for row in published.rows():
        groups.setdefault(f"{row['learning']}, {row['data']}", []).append(100 * float(row["sigma_15"]))
    return [
        {"side": side, "quantity": "aR@1", "value": fmean(group), "error": stdev(group) / len(group) ** 0.5}
        for side, group in groups.items()
        if len(group) > 1
    ]


def parameters() -> list[dict]:
    """Parameters of a ResNet-50 with Table III's heads, in millions, and the share that another head adds."""
    counts = {
        heads: RESNET50 + sum(tensor.numel() for tensor in MultiProjector(2048, 2048, 128, heads).parameters())
        for heads in HEADS
    }
    lines = [{"side": f"M = {heads}", "quantity": "millions", "value": counts[heads] / 1e6} for heads in HEADS]
    added = max(100 * (counts[heads] / counts[1] - 1) / (heads - 1) for heads in HEADS[1:])
    return [{**line, "error": 0} for line in [*lines, {"side": "another head", "quantity": "share", "value": added}]]


if __name__ == "__main__":
    for line in recall_by_learning() + parameters():
        print(json.dumps(line))
