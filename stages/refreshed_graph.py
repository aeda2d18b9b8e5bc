"""The nearest training images of every training image, by the adaptors: as the average of all sets embeds them.

Reads   images (tables), adaptor/<every granularity>, knn_graph
Writes  neighbours.zarr   image x rank: as many as knn_graph has, found by the same kind of index
        summary.json      that `index`, the recall `wanted` of it and its `recall`; and `turnover`: the share of
                          neighbours that knn_graph does not have
"""

import json
from pathlib import Path

import numpy as np
import torch

from polygrain.compute import device
from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.encoder.extract import embed_shares
from polygrain.encoder.model import load, merge
from polygrain.retrieval.approximate import nearest_others
from polygrain.runner import command, outputs
from polygrain.store import arrays
from polygrain.store.graphs import search_of, turnover
from polygrain.store.image_table import open_pixels, read_tables


class Params(schema.Section):
    precision: device.Precision


def main(images: Path, adaptor: Path, knn_graph: Path, output: Path, *, params: Params, lists: Lists) -> str:
    names, tasks = lists.trained, list(lists.tasks)
    model = merge([load(adaptor / name) for name in names], names, "average", torch.Generator(), 0.0)
    before, (index, wanted) = arrays.open(knn_graph / "neighbours.zarr")[:], search_of(knn_graph)
    pixels, rows = open_pixels(images, tasks), read_tables(images, tasks).train
    batch = device.inference(model.config.size)[0]
    embeddings = embed_shares(model.to(device.best()), pixels, rows, batch, params.precision, "graph")
    graph = nearest_others(embeddings, before.shape[1], index, wanted, metric="inner_product")
    new = turnover(before, graph.neighbours)
    with outputs.folder(output) as folder:
        arrays.write(folder / "neighbours.zarr", graph.neighbours.astype(np.int64), "image rank", 1024)
        facts = {"index": index, "wanted": wanted, "recall": graph.recall, "turnover": round(new, 6)}
        (folder / "summary.json").write_text(json.dumps(facts, indent=1) + "\n")
    return f"neighbours of {len(rows):,} images, {before.shape[1]} each, {new:.1%} of them new"


if __name__ == "__main__":
    command.run(main, Params)
