"""The most memory that pseudo-labels at the largest k take beside the features, seeds included."""

import re
from pathlib import Path

from benchmarks.measure import FULL, report, seconds
from benchmarks.mixture import PAPER, hierarchical_mixture, scaled
from polygrain.clustering.lloyd import lloyd
from polygrain.clustering.seeding import nearest_seeds, seed_order


def resident(name: str) -> int:
    """VmRSS, the resident bytes of this process, or VmHWM, the most there were since `forget_peak`."""
    return 1024 * int(re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())[1])


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


if __name__ == "__main__":
    n = PAPER if FULL else 12_000
    k = scaled(n)[-1]
    x = hierarchical_mixture(n)
    small = seed_order(x[:500], 50, 0)
    lloyd(x[:500], x[small.order], nearest_seeds(small.records, 50, 500), 2)
    forget_peak()
    before = resident("VmRSS")

    def work() -> None:
        seeds = seed_order(x, k, 0)
        lloyd(x, x[seeds.order], nearest_seeds(seeds.records, k, n), 300, nearest=True)

    taken = seconds(work)
    extra = (resident("VmHWM") - before) / 2**30
    report(f"memory beside the features, n={n}, k={k}", taken, None, extra_gib=round(extra, 2), allowed_gib=3)
    assert extra < 3
