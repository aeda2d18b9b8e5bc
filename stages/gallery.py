"""One task's images as a collection to search: the chosen model's embeddings, smoothed if that helps.

Reads   images, choice, features
Writes  embeddings.parquet   what `polygrain embed` writes (store/embeddings.py), for `polygrain search --in`
        gallery.json         the smoothing that was chosen, without labels, and the agreement of each that was compared
        neighbours.zarr      image x rank: the graph, if the images are smoothed

Few images stay as they are, and so do those without a mutual neighbour. The smoothing is chosen as
the evaluation chooses it: by the images that are no query.
"""

import json
import os
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np

from polygrain.compute import device
from polygrain.config import schema
from polygrain.encoder.digest import digest
from polygrain.encoder.model import load
from polygrain.encoder.stored import embed, open_features
from polygrain.retrieval.smoothing import linked
from polygrain.retrieval.smoothing_choice import SmoothingSettings, choose
from polygrain.runner import command, outputs
from polygrain.runner.progress import progress
from polygrain.store import arrays, embeddings
from polygrain.store.collection import open_pixels, read_table


class Params(schema.Section):
    smoothing: SmoothingSettings


def main(
    images: Path,
    choice: Path,
    features: Path,
    output: Path,
    *,
    task: str,
    source: str,
    params: Params,
    alike: dict[str, int],
) -> str:
    model = load(choice).to(device.best())
    pixels, table = open_pixels(images.parent, [task]), read_table(images)
    paths, is_query = table["path"].to_pylist(), np.array(table["is_query"].to_pylist(), bool)
    stored = open_features(features.parent, [task])
    vectors = embed(model, stored, pixels, np.arange(len(paths)), "gallery")
    axes = model.config.grains.get(task)
    is_whitened = bool(model.config.reduced) and not model.config.grains
    # By the images that `evaluation` smooths and searches: what it measured is what is served.
    searched = vectors if is_query.all() else vectors[~is_query]
    chosen = choose(searched, params.smoothing, is_whitened=is_whitened, alike=alike.get(task))
    name, smoothing = digest(choice), asdict(chosen.smoothing)
    root = source if os.path.isabs(source) else os.path.relpath(source, output)  # so that the folder may be shared
    facts = {"model": name, "dim": str(model.dim), "root": root, "images": "", "smoothing": json.dumps(smoothing)}
    facts |= {"folder": os.path.relpath(choice, output)} | ({"axes": str(axes)} if axes else {})
    columns = {"path": paths, "embedding": vectors}
    record = {"model": name, "images": len(paths), "axes": axes, "smoothing": smoothing, "why": chosen.why}
    with outputs.folder(output) as folder:
        if chosen.smoothing.strength:
            shown = partial(progress, description="smooth", unit="part")
            neighbours, columns["smoothed"] = linked(vectors, chosen.smoothing, shown)
            arrays.write(folder / "neighbours.zarr", neighbours.astype(np.int64))
        embeddings.write(folder / "embeddings.parquet", columns, facts)
        text = json.dumps(record | {"agreement": chosen.agreement}, indent=1)
        (folder / "gallery.json").write_text(text + "\n", encoding="utf-8")
    return f"{len(paths):,} images, {chosen.smoothing}: {chosen.why}"


if __name__ == "__main__":
    command.run(main, Params, alike="choice.alike")
