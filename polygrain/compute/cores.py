"""The number of usable cores."""

import os
import sys
from contextlib import suppress
from math import ceil
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


def cores() -> int:
    """The cores that this process may use: a container may have two of 64, by affinity or by quota."""
    own = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, min([own, *map(ceil, quotas())]))


def quotas() -> list[float]:
    """The cores that the control groups of this process, of version 1 or 2, allow."""
    found = []
    for line in OWN.read_text().splitlines() if OWN.exists() else []:
        _, kinds, path = line.split(":", 2)
        if kinds and "cpu" not in kinds.split(","):
            continue
        # In a container its own group stands at the top.
        root = GROUPS / "cpu" if kinds else GROUPS
        for folder in {root, *(root / part for part in [path.lstrip("/"), *map(str, Path(path.lstrip("/")).parents)])}:
            with suppress(OSError, ValueError):
                files = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if kinds else ("cpu.max",)
                quota, period = map(float, " ".join((folder / file).read_text() for file in files).split())
                found += [quota / period] if quota > 0 else []
    return found
