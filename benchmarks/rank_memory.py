"""The most memory that a process takes which holds its share of the rows: seeds, then one of Lloyd's iterations.

torchrun --standalone --nproc-per-node 4 -m benchmarks.rank_memory [--full] [--cells | --gallery]

With --full two million rows. With --cells many clusters of a sample: inside coarse cells, each process with the
centroids of its own, and then one pass over all rows. With --gallery the metrics of retrieval, of fewer rows.
"""

import sys
import time

import numpy as np
import torch

from benchmarks.measure import FULL
from benchmarks.memory import forget_peak, resident
from polygrain.clustering import sampled
from polygrain.clustering.lloyd import lloyd
from polygrain.clustering.screen import Screen
from polygrain.clustering.seeding import all_records, nearest_seeds, seed_order
from polygrain.compute import processes
from polygrain.compute.distributed import Distributed
from polygrain.retrieval import metrics
from polygrain.retrieval.approximate import Centres

N, D, K = (2_000_000, 384, 16_384) if FULL else (60_000, 384, 512)
CENTRES, ROWS = 4_096, 16_384
# With --cells: clusters, and the rows that they are sought among.
MANY, SAMPLE = (131_072, 600_000) if FULL else (512, 20_000)
# With --gallery: rows, of which this many are of one class.
GALLERY, CLASS = (200_000 if FULL else 30_000), 30


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


def allowed(rows: int, clusters: int, more: int = 2**30) -> int:
    """Bytes for so many rows, those of a process, for so many centroids, and for the rest: libraries, blocks."""
    return int(1.3 * 4 * D * (rows + clusters) + more)


def told(peak: int, most: int) -> None:
    peaks = processes.gather(torch.tensor([peak])).tolist()
    if processes.rank() == 0:
        print(f"peaks {[round(value / 2**30, 2) for value in peaks]} GiB, allowed {most / 2**30:.2f} GiB")
    assert peak <= most


def in_cells() -> None:
    count = sampled.coarse_cells(MANY)
    x = drawn(processes.share(SAMPLE))
    processes.wait()
    forget_peak()
    before, start = resident("VmRSS") - x.nbytes, time.monotonic()
    seeds = seed_order(x, count, 0)
    first = processes.take(torch.from_numpy(x), torch.from_numpy(seeds.order), SAMPLE)
    clusters = sampled.two_stage(x, first, nearest_seeds(seeds.records, count, SAMPLE), MANY, 0, 20)
    clustered = time.monotonic() - start
    centres = Centres(clusters.centroids, drawn(slice(0, 1_000)), 0.99)

    def read(part: slice) -> tuple[np.ndarray, np.ndarray]:
        return (rows := drawn(part)), rows

    assigned = sampled.assign_apart(read, N, clusters.centroids, centres.near)
    peak, taken = resident("VmHWM"), time.monotonic() - start
    lost = sampled.loss(assigned.costs, np.arange(SAMPLE))
    if processes.rank() == 0:
        print(f"n={N:,}, d={D}, k={MANY:,} of {SAMPLE:,}, {count} cells, {processes.count()} processes:", end=" ")
        print(f"clusters {clustered:.0f} s, all {taken:.0f} s, {len(assigned.sums):,} centroids in the first process")
        print(f"inertia {assigned.costs.sum():.6e}, recall {centres.recall:.3f}, lost at most {lost.at_most:.3f}")
    # The sample's share once as it was read and once as cells; of its centroids a process has the sums, too.
    share = 2 * -(-SAMPLE // processes.count()), 3 * -(-MANY // processes.count())
    told(peak, allowed(*share, before + 2**29))


def in_blocks() -> None:
    x, labels = Distributed(drawn(processes.share(GALLERY))), np.arange(GALLERY) // CLASS
    metrics.WHOLE = 0
    processes.wait()
    forget_peak()
    before, start = resident("VmRSS") - x.part.nbytes, time.monotonic()
    scores = metrics.shared_query_metrics(x, labels)
    peak, taken = resident("VmHWM"), time.monotonic() - start
    if processes.rank() == 0:
        print(f"n={GALLERY:,}, d={D}, classes of {CLASS}, {processes.count()} processes: {taken:.0f} s")
        print(f"R-Precision {scores.r_precision.mean():.4f}")
    # The share as it came and with unit length; blocks and their products; 16 bytes for each neighbour of a query, and
    # of all rows what is found.
    share = -(-GALLERY // processes.count())
    told(peak, allowed(2 * share, 0, before + 2**28 + 3 * 16 * CLASS * share + 256 * GALLERY))


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
    if processes.rank() == 0:
        print(f"n={N:,}, d={D}, k={K:,}, {processes.count()} processes: seeds {seeded:.0f} s, all {taken:.0f} s")
        print(f"{kept:,} records, inertia {clusters.inertia:.6e}")
    told(peak, allowed(-(-N // processes.count()), K))


if __name__ == "__main__":
    (in_cells if "--cells" in sys.argv else in_blocks if "--gallery" in sys.argv else main)()
