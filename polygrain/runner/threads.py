"""Threads of libraries, limited by variables that libraries read when they are loaded."""

import os

from polygrain.compute.cores import cores

# How long a thread spins before it sleeps, as in stages/run: .3 ms in libgomp (torch, faiss, scikit-learn), .4 in
# OpenBLAS (numpy, scipy). By themselves they spin for 6 and 60 or more, on cores that others need.
WAITS = {"GOMP_SPINCOUNT": "10000", "OPENBLAS_THREAD_TIMEOUT": "20"}


def variables(jobs: int = 1) -> dict[str, str]:
    """Variables that give each process short waits and its part of the cores; the user's own values stay."""
    result = {name: value for name, value in WAITS.items() if not os.environ.get(name)}
    if os.environ.get("OMP_WAIT_POLICY"):
        result.pop("GOMP_SPINCOUNT", None)
    # stages/run divides the cores among the processes of one stage.
    is_divided = os.environ.get("POLYGRAIN_TORCHRUN") or os.environ.get("POLYGRAIN_PROCESSES", "1") != "1"
    if jobs > 1 and not is_divided and not os.environ.get("OMP_NUM_THREADS"):
        result["OMP_NUM_THREADS"] = str(max(1, cores() // jobs))
    return result
