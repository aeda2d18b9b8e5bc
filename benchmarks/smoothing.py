"""A large collection: what follows from its stored outputs, and smoothing by its neighbours. Time and memory.

python -m benchmarks.smoothing [--rows 1000000] [--dim 384]
"""

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.measure import FULL
from benchmarks.mixture import ROWS, hierarchical_mixture
from polygrain.collection.postprocessing.comparison import Comparison, mean_of
from polygrain.collection.postprocessing.diffusion import Smoothing, neighbours_of, turned_to_link
from polygrain.compute.blocks import blocks
from polygrain.compute.vectors import unit_rows
from polygrain.encoder.config import Config
from polygrain.encoder.model import Model
from polygrain.encoder.stored import Followed, Stored, facts_of
from polygrain.retrieval import whitening
from polygrain.retrieval.metrics import collection_metrics
from polygrain.store import arrays

CHOSEN = Smoothing(0.9, 20)
QUERIES, CLASS = 10_000, 100  # images that ask, and of a class


def report(claim: str, start: float, **facts: object) -> None:
    peak = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)  # the most memory held so far
    row = {"claim": claim, "seconds": round(time.perf_counter() - start, 1), "peak_gib": peak}
    print(json.dumps(row | {"threads": torch.get_num_threads()} | facts), flush=True)


def follow(rows: int, dim: int, file: Path) -> None:
    """The last layer, the embeddings and their metrics, from outputs that are stored in half precision."""
    generator, kwargs = np.random.default_rng(0), {"img_size": 32, "depth": 1, "embed_dim": dim, "num_heads": 1}
    with arrays.create(file, (dim,), "float16") as writer:
        for part in blocks(rows, ROWS):
            drawn = generator.standard_normal((part.stop - part.start, dim), np.float32)
            writer.append(unit_rows(drawn).astype(np.float16))
    half = (0.5, 0.5, 0.5)
    model = Model(Config(architecture="vit_tiny_patch16_224", kwargs=kwargs, size=32, resize=32, mean=half, std=half))
    stored, start, numbers = (
        Stored(arrays.open(file), facts_of(model), "features"),
        time.perf_counter(),
        np.arange(rows),
    )
    fitted = whitening.fit(Followed(stored, model, numbers), 256, "half")
    report(f"last layer fitted to {rows:,} x {dim} stored outputs", start)
    model.reduce(torch.from_numpy(fitted.projection.T.copy()), torch.from_numpy(fitted.bias))
    start = time.perf_counter()
    embeddings = stored.embed(model, numbers)
    report("their embeddings", start, dim=model.dim)
    start, classes = time.perf_counter(), generator.integers(rows // CLASS, size=rows)
    asked = slice(min(QUERIES, rows // 10))
    collection_metrics(embeddings[asked], embeddings[asked.stop :], classes[asked], classes[asked.stop :])
    report(f"metrics of {asked.stop:,} queries among the others", start)


def measure(rows: int, dim: int) -> None:
    vectors = hierarchical_mixture(rows, dim)
    start = time.perf_counter()
    neighbours_of(turned_to_link(vectors), CHOSEN.neighbours)
    report(f"graph of {rows:,} x {dim}", start)
    start = time.perf_counter()
    Comparison(mean_of(vectors), CHOSEN).rows(vectors)
    report("own mean, graph and smoothed rows", start)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000 if FULL else 100_000)
    parser.add_argument("--dim", type=int, default=384)
    words, _ = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        follow(words.rows, words.dim, Path(folder) / "features.zarr")
    measure(words.rows, words.dim)
