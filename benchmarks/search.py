"""The time of a click on the search page, loaded and warm: 100,000 embeddings of 384 numbers on each of two sides.

All that the server does is in it: both sides searched, filters, names and scores put together. `--full` adds 1,100,000
embeddings of 128 numbers.
"""

import json
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.measure import FULL
from benchmarks.mixture import hierarchical_mixture
from polygrain.app.page.app import Page, Query
from polygrain.app.page.sides import Side
from polygrain.collection import Collection
from polygrain.collection.file import Facts, File, write
from polygrain.collection.maker import Maker
from polygrain.collection.postprocessing import Comparison
from polygrain.encoder import load

SIZE, LARGE, SHOWN, CLICKS = (100_000, 384), (1_100_000, 128), 24, 100
BAR_MS = 100
ENCODER = Path(__file__).parents[1] / "encoders/vit48"  # which is asked nothing


def measure(root: Path, rows: int, dim: int) -> None:
    """Prints one row for queries that are rows of the collection; no model is asked about these."""
    paths = [f"task{row % 5}/{row}.png" for row in range(rows)]
    for task_name in {path.partition("/")[0] for path in paths}:
        (root / task_name).mkdir(exist_ok=True)
    columns = {"path": paths, "searched": hierarchical_mixture(rows, dim)}
    write(root / "e.parquet", columns, Facts("drawn", dim, Comparison(), root))
    (root / paths[0]).touch()
    made = Collection(File(root / "e.parquet"), Maker(None, load(ENCODER), "drawn"))
    page = Page([Side(name, "", made) for name in ("encoder", "model")], 0.95)
    asked = np.random.default_rng(0).choice(rows, CLICKS, replace=False).tolist()
    for row in asked:
        (root / paths[row]).touch()
    for kind, filters in {"all": (None, ""), "one task": ("task1", ""), "names with 99": (None, "99")}.items():
        times = [page.search(Query(row, b"", None), *filters, SHOWN)["ms"] for row in asked]
        fastest, median, slow = np.quantile(times, (0, 0.5, 0.95)).round(1)
        result = {"claim": f"search page, {rows:,} rows, {kind}", "median_ms": median, "p95_ms": slow, "bar_ms": BAR_MS}
        more = {"fastest_ms": fastest, "bytes_of_embeddings": 2 * 4 * dim * rows}
        print(json.dumps(result | more), flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), *SIZE)
        if FULL:
            measure(Path(folder), *LARGE)
