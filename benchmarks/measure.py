"""Time two ways to do the same and print their ratio as one line of JSON."""

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
    """Print one row; a ratio above 1 means that ours is faster."""
    row: dict[str, object] = {"claim": claim, "ours_s": round(ours_s, 4)}
    if peer_s is not None:
        row |= {"peer_s": round(peer_s, 4), "ratio": round(peer_s / ours_s, 2)}
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
    """Report the fastest of `rounds` runs of each, in turn, after one of both if `warm`.

    `in_a_row`: all of ours, then all of the peer's. Some virtual machines take back idle memory, and alternating runs
    would measure how long it takes to get it again.
    """
    if warm:
        ours(), other()
    if in_a_row:
        ours_s, peer_s = [seconds(ours) for _ in range(rounds)], [seconds(other) for _ in range(rounds)]
    else:
        ours_s, peer_s = zip(*[(seconds(ours), seconds(other)) for _ in range(rounds)], strict=True)
    report(claim, min(ours_s), min(peer_s), rounds=rounds, **facts)
