"""R-Precision and MAP@R against pytorch-metric-learning's `AccuracyCalculator(k="max_bin_count")`, equal to 1e-6."""

import numpy as np
import torch
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

from benchmarks.measure import FULL, compare
from polygrain.retrieval.metrics import retrieval_metrics


def draw(n: int, classes: int, dim: int = 384) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.arange(n) % classes
    points = rng.normal(size=(classes, dim))[labels] + 2.5 * rng.normal(size=(n, dim))
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32), labels


if __name__ == "__main__":
    for n, classes in [(20_000, 20), (60_502, 11_316)] if FULL else [(5_000, 20), (10_000, 1_870)]:
        x, labels = draw(n, classes)
        calculator = AccuracyCalculator(include=("r_precision", "mean_average_precision_at_r"), k="max_bin_count",
                                        device=torch.device("cpu"))  # fmt: skip
        queries, targets, results = torch.from_numpy(x), torch.from_numpy(labels), {}

        def ours(x=x, labels=labels, results=results) -> None:
            results["ours"] = retrieval_metrics(x, labels)

        def peer(calculator=calculator, queries=queries, targets=targets, results=results) -> None:
            results["peer"] = calculator.get_accuracy(queries, targets)

        ours(), peer()
        difference = max(
            abs(results["ours"]["r_precision"] - results["peer"]["r_precision"]),
            abs(results["ours"]["map_at_r"] - results["peer"]["mean_average_precision_at_r"]),
        )
        assert difference < 1e-6, results
        compare(f"RP and MAP@R, n={n}, {classes} classes", ours, peer, 3, warm=False, in_a_row=True,
                peer="AccuracyCalculator", equality=f"both within {difference:.0e}")  # fmt: skip
