"""Seconds of two ways to do the same, taken in turn, and their ratio as one JSON line."""

import json
import sys
import time
from collections.abc import Callable

import torch

FULL = "--full" in sys.argv


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def report(claim: str, ours_s: float, peer_s: float | None, **facts: object) -> None:
    """Prints one row; a ratio above 1 means ours is faster."""
    row: dict[str, object] = {"claim": claim, "ours_s": round(ours_s, 4)}
    if peer_s is not None:
        row = {"claim": claim, "ratio": round(peer_s / ours_s, 2), "ours_s": row["ours_s"], "peer_s": round(peer_s, 4)}
    print(json.dumps(row | {"threads": torch.get_num_threads()} | facts), flush=True)


def compare(
    claim: str,
    ours: Callable[[], object],
    other: Callable[[], object],
    rounds: int,
    warm: bool = True,
    **facts: object,
) -> None:
    """Reports the fastest of `rounds` alternating runs of each, after one of both if `warm`."""
    if warm:
        ours(), other()
    pairs = [(seconds(ours), seconds(other)) for _ in range(rounds)]
    best_ours, best_peer = (min(column) for column in zip(*pairs, strict=True))
    report(claim, best_ours, best_peer, **facts)
