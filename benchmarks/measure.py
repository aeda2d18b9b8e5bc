"""Seconds of two ways to do the same, taken in turn, and their ratio as one JSON line."""

import json
import time
from collections.abc import Callable

import torch


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(claim: str, ours: Callable[[], object], other: Callable[[], object], rounds: int, **facts: object) -> None:
    """Prints other / ours from the fastest of `rounds` alternating runs: more than 1 means ours is faster."""
    ours(), other()
    pairs = [(seconds(ours), seconds(other)) for _ in range(rounds)]
    best_ours, best_peer = (min(column) for column in zip(*pairs, strict=True))
    row = {"claim": claim, "ratio": round(best_peer / best_ours, 2), "ours_s": best_ours, "peer_s": best_peer}
    print(json.dumps(row | {"threads": torch.get_num_threads()} | facts), flush=True)
