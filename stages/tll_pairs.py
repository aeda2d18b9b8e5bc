"""The pairs of one study of visual analogies, decoded once: embedded ones, or a folder's, matched by name or by a CSV.

Writes  {left,right}/pixels.zarr   pair size size 3, uint8, rows in the order of pairs.parquet
        pairs.parquet              name, left, right: a row per pair, sorted by name
        rejected.csv               name, reason: pairs with an image that cannot be decoded
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.runner import command, outputs
from polygrain.runner.progress import progress
from polygrain.sources.decode import decode_all
from polygrain.store import arrays
from polygrain.store.rectangle import Shape
from polygrain.store.tables import write_csv
from polygrain.tll.pairs import installed, pairing
from polygrain.tll.pairs.pairing import PathPair

PER_CHARACTER, PLACES = 4, 60  # embedded pairs of each character; places in each photograph, a pair a rendition
TABLE = pa.schema([(name, pa.string()) for name in ("name", "left", "right")])
PIXELS = "image y x channel"


class Params(schema.Section):
    side: int = Field(ge=16, le=1024, description="side of the stored square images, pixels; the extractor's input")
    shape: Shape = Field(
        description="crop: the centre square of an image; squash: the whole image, its proportions lost"
    )


Pixels = tuple[np.ndarray, np.ndarray]  # of the left side and of the right one


def drawn_pairs(side: int) -> dict[PathPair, Pixels]:
    """The embedded pairs."""
    pairs = installed.draw(side, PER_CHARACTER, PLACES)
    return {PathPair(name, name, name): (pair.left, pair.right) for name, pair in sorted(pairs.items())}


def folder_pairs(
    root: Path, listed: str | None, params: Params, rejected: dict[str, str]
) -> Iterator[tuple[PathPair, Pixels]]:
    """The pairs of a folder. Those that a damaged image leaves out go into `rejected` with the reason."""
    pairs = pairing.find(root, listed)
    sides = ([getattr(pair, side) for pair in pairs] for side in ("left", "right"))
    pictures = zip(*(decode_all(root, paths, params.side, params.shape) for paths in sides), strict=True)
    for pair, (left, right) in progress(zip(pairs, pictures, strict=True), "pairs", len(pairs), "pair"):
        sides_of = ((pair.left, left), (pair.right, right))
        if reasons := [f"{path}: {picture}" for path, picture in sides_of if isinstance(picture, str)]:
            rejected[pair.name] = "; ".join(reasons)
        else:
            yield pair, (left.pixels, right.pixels)


def main(path: Path, output: Path, *, study: str, params: Params, lists: Lists) -> str:
    source, rejected, rows = lists.tll[study], {}, []
    if source.source == "folder":
        pairs = folder_pairs(path, source.listed, params, rejected)
    else:
        pairs = drawn_pairs(params.side).items()
    shape = (params.side, params.side, 3)
    with outputs.folder(output) as folder:
        for side in ("left", "right"):
            (folder / side).mkdir()
        with (
            arrays.create(folder / "left" / "pixels.zarr", shape, "uint8", PIXELS) as left,
            arrays.create(folder / "right" / "pixels.zarr", shape, "uint8", PIXELS) as right,
        ):
            for pair, pixels in pairs:
                for writer, side in zip((left, right), pixels, strict=True):
                    writer.append(side[None])
                rows.append(pair)
        if not rows:
            raise ValueError(f"{path}: none of the {len(rejected)} pairs can be used: {next(iter(rejected.items()))}")
        columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
        pq.write_table(pa.Table.from_arrays(columns, schema=TABLE), folder / "pairs.parquet")
        write_csv(folder / "rejected.csv", [("name", "reason"), *sorted(rejected.items())])
    return f"{len(rows):,} pairs, {len(rejected)} left out"


if __name__ == "__main__":
    command.run(main, Params)
