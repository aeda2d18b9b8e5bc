"""Shapes in signatures are checked while tests run, and only then (it costs nothing in production)."""

import os

os.environ.setdefault("DVC_NO_ANALYTICS", "1")
os.environ.setdefault("DO_NOT_TRACK", "1")
# Workers of pytest-xdist share the cores; threads that outnumber them wait for one another.
if workers := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // int(workers))))

from jaxtyping import install_import_hook

hook = install_import_hook(["stages", "polygrain"], "beartype.beartype")
