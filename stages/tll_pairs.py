"""The pairs of one study of visual analogies, decoded once: embedded ones, or a folder's, matched by name or by a CSV.

Writes  {left,right}/pixels.zarr   pair size size 3, uint8, rows in the order of pairs.parquet
        pairs.parquet              name, left, right, group: a row per pair, sorted by name
        rejected.csv               name, reason: pairs with an image that cannot be decoded, or left out by `faces`
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.runner import command, outputs
from polygrain.runner.progress import progress
from polygrain.sources.decode import Picture, decode_all
from polygrain.store import arrays
from polygrain.store.square import Shape
from polygrain.store.tables import write_csv
from polygrain.tll.pairs import faces, installed, pairing
from polygrain.tll.pairs.pairing import PathPair

FACE_SIZE = 256
TABLE = pa.schema([(name, pa.string()) for name in ("name", "left", "right", "group")])


class Params(schema.Section):
    side: int = Field(ge=16, le=1024, description="side of the stored square images, pixels; the extractor's input")
    shape: Shape = Field(
        description="what becomes the square: crop: the centre one; squash: the whole image, its proportions lost"
    )
    max_megapixels: int = Field(ge=1, le=89, description="larger image files are refused, unread")
    faces: Literal["keep", "drop", "only"] = Field(
        description="what to do with a folder's pairs that have a face on both sides; drop and only need OpenCV"
    )
    per_character: schema.Count = Field(description="embedded pairs of each character, in fonts of two families")
    places: int = Field(ge=1, le=70, description="places in each embedded photograph, one pair a rendition")


Pixels = tuple[np.ndarray, np.ndarray]  # of the left side and of the right one


def drawn_pairs(params: Params) -> dict[PathPair, Pixels]:
    """The embedded pairs."""
    pairs = installed.draw(params.side, params.per_character, params.places)
    return {PathPair(name, name, name, pair.group): (pair.left, pair.right) for name, pair in sorted(pairs.items())}


def decoded(
    root: Path, pairs: list[PathPair], size: int, max_pixels: int, shape: Shape, what: str
) -> Iterator[tuple[PathPair, tuple[Picture | str, Picture | str]]]:
    """Each pair with both pictures; in place of one that cannot be decoded, the reason."""
    sides = ([getattr(pair, side) for pair in pairs] for side in ("left", "right"))
    pictures = zip(*(decode_all(root, paths, size, max_pixels, shape) for paths in sides), strict=True)
    return progress(zip(pairs, pictures, strict=True), what, len(pairs), "pair")


def with_faces(root: Path, pairs: list[PathPair], max_pixels: int) -> set[PathPair]:
    """The pairs with a face on both sides, as in the published subset of faces."""
    has_face = faces.detector()
    return {
        pair
        for pair, pictures in decoded(root, pairs, FACE_SIZE, max_pixels, "crop", "faces")
        if all(isinstance(picture, Picture) and has_face(picture.pixels) for picture in pictures)
    }


def folder_pairs(
    root: Path, listed: str | None, params: Params, rejected: dict[str, str]
) -> Iterator[tuple[PathPair, Pixels]]:
    """The pairs of a folder. Those that `faces` or a damaged image leaves out go into `rejected` with the reason."""
    pairs, max_pixels = pairing.find(root, listed), params.max_megapixels * 10**6
    if params.faces != "keep":
        faced = with_faces(root, pairs, max_pixels)
        left_out = [pair for pair in pairs if (pair in faced) == (params.faces == "drop")]
        rejected |= {pair.name: f"faces: {params.faces}" for pair in left_out}
        pairs = [pair for pair in pairs if pair.name not in rejected]
    for pair, pictures in decoded(root, pairs, params.side, max_pixels, params.shape, "pairs"):
        paths = zip((pair.left, pair.right), pictures, strict=True)
        if reasons := [f"{path}: {picture}" for path, picture in paths if isinstance(picture, str)]:
            rejected[pair.name] = "; ".join(reasons)
        else:
            yield pair, (pictures[0].pixels, pictures[1].pixels)


def main(path: Path, output: Path, *, study: str, params: Params, lists: Lists) -> str:
    source, rejected, rows = lists.tll[study], {}, []
    if source.source == "folder":
        pairs = folder_pairs(path, source.listed, params, rejected)
    else:
        pairs = drawn_pairs(params).items()
    shape = (params.side, params.side, 3)
    with outputs.folder(output) as folder:
        for side in ("left", "right"):
            (folder / side).mkdir()
        with (
            arrays.create(folder / "left" / "pixels.zarr", shape, "uint8") as left,
            arrays.create(folder / "right" / "pixels.zarr", shape, "uint8") as right,
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
    return f"{len(rows):,} pairs in {len({pair.group for pair in rows})} group(s), {len(rejected)} left out"


if __name__ == "__main__":
    command.run(main, Params)
