"""The ranked lists of each model as files, for programs of others: ranx, pytrec_eval, or a script."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from polygrain.store.tables import read_parquet

# Written for each protocol beside its name in `evaluation`.
PROTOCOLS = {"": "ranked", "_collection": "collection_ranked", "_smoothed": "smoothed_ranked"}
IMAGES = ["path", "label", "split", "is_query"]


def write(evaluation: Path, models: Iterable[str], tables: dict[str, pa.Table], folder: Path) -> None:
    """`<model>.parquet` (task, query, rank, path, score, relevant) of each protocol, and `images.parquet`.

    `tables` are those of the tasks' images. `query` is a path, too. An image is relevant where its label is the
    query's, and none is relevant to label -1. In `<model>.parquet` the images that are no part of the split `train`
    ask each other; in `<model>_collection.parquet` and `<model>_smoothed.parquet` those that are `is_query` ask all
    others.
    """
    folder.mkdir()
    images = [
        table.select(IMAGES).add_column(0, "task", pa.array([name] * len(table))) for name, table in tables.items()
    ]
    pq.write_table(pa.concat_tables(images), folder / "images.parquet")
    for model in models:
        for form, name in PROTOCOLS.items():
            if (file := evaluation / model / f"{name}.parquet").exists():
                pq.write_table(
                    joined(read_parquet(file), tables), folder / f"{model}{form}.parquet", compression="zstd"
                )


def joined(ranked: pa.Table, tables: dict[str, pa.Table]) -> pa.Table:
    """The lists with paths in place of rows, and the relevant images."""
    parts = []
    for task, table in tables.items():
        own = ranked.filter(pa.compute.equal(ranked["task"], task))
        asked, found = own["query"].to_numpy(), own["row"].to_numpy()
        paths, labels = table["path"].combine_chunks(), table["label"].to_numpy()
        columns = {
            "task": own["task"],
            "query": pa.DictionaryArray.from_arrays(pa.array(asked.astype(np.int32)), paths),
            "rank": own["rank"],
            "path": pa.DictionaryArray.from_arrays(pa.array(found.astype(np.int32)), paths),
            "score": own["score"],
            "relevant": (labels[asked] == labels[found]) & (labels[asked] >= 0),
        }
        parts.append(pa.table(columns))
    return pa.concat_tables(parts).unify_dictionaries()
