"""The most memory that a process takes which holds its share of the rows: seeds, then one of Lloyd's iterations.

torchrun --standalone --nproc-per-node 4 -m benchmarks.rank_memory [--full], which takes two million rows.
"""

import time

import numpy as np
import torch

from benchmarks.measure import FULL
from benchmarks.memory import forget_peak, resident
from stages.core.clustering.lloyd import lloyd
from stages.core.clustering.screen import Screen
from stages.core.clustering.seeding import all_records, nearest_seeds, seed_order
from stages.core.compute import processes

N, D, K = (2_000_000, 384, 16_384) if FULL else (60_000, 384, 512)
CENTRES, ROWS = 4_096, 16_384


def drawn(rows: slice) -> np.ndarray:
    """These rows of a mixture, the same in whichever process; every block of it has a generator of its own."""
    centres = np.random.default_rng(0).normal(size=(CENTRES, D)).astype(np.float32)
    x = np.empty((rows.stop - rows.start, D), np.float32)
    for block in range(rows.start // ROWS, -(-rows.stop // ROWS)):
        generator = np.random.default_rng([1, block])
        owners = generator.integers(CENTRES, size=ROWS)
        made = generator.normal(scale=0.6, size=(ROWS, D)).astype(np.float32) + centres[owners]
        start, stop = max(rows.start, block * ROWS), min(rows.stop, (block + 1) * ROWS)
        x[start - rows.start : stop - rows.start] = made[start - block * ROWS : stop - block * ROWS]
    return x


def main() -> None:
    x = drawn(processes.share(N))
    processes.wait()
    forget_peak()
    start = time.monotonic()
    screen = Screen(torch.from_numpy(x))
    seeds = seed_order(x, K, 0, screen=screen)
    kept = sum(len(block) for block in all_records(seeds))
    seeded = time.monotonic() - start
    first = processes.take(screen.x, torch.from_numpy(seeds.order), N)
    clusters = lloyd(x, first, nearest_seeds(seeds.records, K, N), 1, nearest=True, screen=screen)
    peak, taken = resident("VmHWM"), time.monotonic() - start
    allowed = int(1.3 * 4 * D * (-(-N // processes.count()) + K) + 2**30)
    peaks = processes.gather(torch.tensor([peak])).tolist()
    if processes.rank() == 0:
        print(f"n={N:,}, d={D}, k={K:,}, {processes.count()} processes: seeds {seeded:.0f} s, all {taken:.0f} s")
        print(f"peaks {[round(value / 2**30, 2) for value in peaks]} GiB, allowed {allowed / 2**30:.2f} GiB")
        print(f"{kept:,} records, inertia {clusters.inertia:.6e}")
    assert peak <= allowed


if __name__ == "__main__":
    main()
