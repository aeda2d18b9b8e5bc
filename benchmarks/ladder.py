"""Gain and cost of a larger network or a larger side: R-Precision over seconds for a thousand images.

python -m benchmarks.ladder FOLDER [--encoders lite0 lite1] [--sides 96 144 224] [-o docs/results/ladder.csv]

FOLDER holds tasks as <task>/<class>/<image>. A row of the table is an encoder of installed packages at a side; of each
task a fifth of the images search the others: as they are, centred, behind the layer of `ClusterWhitening`, and
smoothed. `seconds` are those of one thread for a thousand images of the tasks' mean, without reading files.
"""

import argparse
import csv
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from polygrain.collection.postprocessing.comparison import Comparison, choose
from polygrain.compute.blocks import blocks
from polygrain.compute.vectors import unit_rows
from polygrain.encoder.model import Model
from polygrain.encoder.origin import Origin, published
from polygrain.fisher import ClusterWhitening
from polygrain.new.encoder import LITE, values_of
from polygrain.new.request import Request
from polygrain.retrieval.metrics import collection_metrics
from polygrain.store.rectangle import rectangle

BATCH = 8
COLUMNS = ["set", "encoder", "side", "seconds", "task", "as it is", "centred", "layer", "smoothed"]


@torch.inference_mode()
def embed(model: Model, files: list[Path]) -> tuple[np.ndarray, float]:
    """The outputs of the whole pictures, and the seconds that an image takes: of each shape by its fastest batch."""
    places: dict[tuple, list[int]] = {}
    pictures = []
    for place, file in enumerate(files):
        with Image.open(file) as image:
            pictures.append(rectangle(image, model.config.side, "whole"))
        places.setdefault(pictures[-1].shape, []).append(place)
    vectors, seconds = np.empty((len(files), model.dim), np.float32), 0.0
    for own in places.values():
        model(torch.from_numpy(pictures[own[0]].copy()).permute(2, 0, 1)[None])  # the engine builds its program
        times = []
        for part in blocks(len(own), BATCH):
            batch = torch.from_numpy(np.stack([pictures[i] for i in own[part]])).permute(0, 3, 1, 2)
            start = time.process_time()
            vectors[own[part]] = model(batch).numpy()
            times.append((time.process_time() - start) / len(batch))
        seconds += min(times) * len(own) / len(files)
    return vectors, seconds


def measure(vectors: np.ndarray, labels: np.ndarray) -> list[float]:
    """R-Precision in percent of each way to compare."""
    asks = np.zeros(len(labels), bool)
    asks[np.random.default_rng(0).permutation(len(labels))[: len(labels) // 5]] = True
    rows, queries = vectors[~asks], vectors[asks]
    layer = ClusterWhitening().fit(rows)
    behind, asked = (layer.transform(of).astype(np.float32) for of in (rows, queries))
    ways = [
        (Comparison(), rows, queries),
        (Comparison(tuple(rows.mean(0))), rows, queries),
        (Comparison(), behind, asked),
    ]
    ways.append((choose(behind)[0], behind, asked))
    found = (collection_metrics(by.query(q), by.rows(x), labels[asks], labels[~asks], 1) for by, x, q in ways)
    return [100 * float(np.nanmean(scores.r_precision)) for scores in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--encoders", nargs="+", default=list(LITE))
    parser.add_argument("--sides", nargs="+", type=int, help="px; without it 96, 144, the native side and 1.5 times it")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/results/ladder.csv"))
    words = parser.parse_args()
    torch.set_num_threads(1)
    tasks = sorted(path for path in words.folder.iterdir() if path.is_dir())
    for name in words.encoders:
        native = published(LITE[name]).input_size[-1]
        for side in words.sides or [96, 144, native, 3 * native // 2]:
            model = Origin(**values_of(Request(name, side=side))[0] | dict.fromkeys(["mean", "std"])).build(Path())
            found = []
            for task in tasks:
                files = sorted(task.glob("*/*"))
                vectors, seconds = embed(model, files)
                labels = np.unique([file.parent.name for file in files], return_inverse=True)[1]
                found.append([1000 * seconds, *measure(unit_rows(vectors), labels)])
            rows = zip(["mean", *(task.name for task in tasks)], [np.mean(found, 0), *found], strict=True)
            is_new = not words.output.exists()
            with words.output.open("a", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerows([COLUMNS] * is_new)
                for task, (cost, *values) in rows:
                    cells = [words.folder.name, name, side, f"{cost:.1f}", task, *(f"{value:.1f}" for value in values)]
                    writer.writerow(cells)
                    print(*cells, flush=True)


if __name__ == "__main__":
    main()
