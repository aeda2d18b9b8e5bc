"""Seconds of two ways to do the same, taken in turn, and their ratio as one JSON line."""

import json
import sys
import time
from collections.abc import Callable

import numpy as np
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
    in_a_row: bool = False,
    **facts: object,
) -> None:
    """Reports the fastest of `rounds` alternating runs of each, after one of both if `warm`.

    `all_s`: all runs in their order, or of more than five the fastest, the median and the slowest.

    `in_a_row`: all of ours, then all of the peer's. Some virtual machines take back memory that rests for seconds, and
    then a gigabyte of fresh memory costs two seconds instead of a tenth; alternating runs measure that.
    """
    if warm:
        ours(), other()
    if in_a_row:
        times = [seconds(ours) for _ in range(rounds)], [seconds(other) for _ in range(rounds)]
    else:
        times = tuple(zip(*[(seconds(ours), seconds(other)) for _ in range(rounds)], strict=True))
    shown = [np.quantile(side, (0, 0.5, 1)) if rounds > 5 else side for side in times]
    report(
        claim, min(times[0]), min(times[1]), all_s=[[round(float(run), 4) for run in side] for side in shown], **facts
    )
