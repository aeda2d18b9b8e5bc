"""Images by their embeddings: a file that `polygrain embed` wrote, behind a faiss index."""

import os
from pathlib import Path
from typing import NamedTuple

import faiss
import numpy as np
from jaxtyping import Bool, Float32, Int64
from PIL import Image

from polygrain.collection import file as embeddings
from polygrain.collection.embedding import embed
from polygrain.collection.listing import STREAMED, absent
from polygrain.collection.postprocessing.comparison import PLAIN, Comparison
from polygrain.encoder.digest import digest
from polygrain.encoder.kept import digest_of, earlier
from polygrain.encoder.model import load
from polygrain.store.reading import reading
from polygrain.store.tables import is_parquet

DEFAULT = "data/choice"


class Hit(NamedTuple):
    """An image of a gallery, and the cosine of its embedding to the query's."""

    score: float
    path: str


class Gallery:
    """Embeddings `row dim` of unit length, a path below `root` for each, and the digest of the model that made them.

    `tasks`: for each row the number of its first folder among `task_names`. `comparison`: how the rows are compared.
    """

    def __init__(
        self,
        root: Path,
        paths: list[str],
        vectors: Float32[np.ndarray, "row dim"],
        digest: str,
        comparison: Comparison = PLAIN,
    ) -> None:
        self.root, self.paths, self.digest, self.comparison = root, paths, digest, comparison
        self.index = faiss.IndexFlatIP(vectors.shape[1])
        self.index.add(vectors)
        tasks = [path.partition("/")[0] if "/" in path else "" for path in paths]
        self.task_names = sorted(set(tasks))
        number = {name: i for i, name in enumerate(self.task_names)}
        self.tasks = np.fromiter((number[task] for task in tasks), np.int64, len(tasks))

    def __len__(self) -> int:
        return len(self.paths)

    def vectors(self, rows: list[int] | Int64[np.ndarray, " query"]) -> Float32[np.ndarray, "query dim"]:
        """The embeddings of some rows."""
        return self.index.reconstruct_batch(np.asarray(rows, np.int64))

    def search(
        self, queries: Float32[np.ndarray, "query dim"], k: int, among: Bool[np.ndarray, " row"] | None = None
    ) -> tuple[Float32[np.ndarray, "query rank"], Int64[np.ndarray, "query rank"]]:
        """Scores and rows of the k nearest, or of all `among` which to look where they are fewer; nearest first."""
        k = min(k, len(self) if among is None else int(among.sum()))
        if k == 0:
            return np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), np.int64)
        # Even where all rows are chosen: for one query faiss is three times as fast with a choice as without.
        bits = None if among is None else np.packbits(among, bitorder="little")
        chosen = faiss.IDSelectorAll() if bits is None else faiss.IDSelectorBitmap(bits)
        # Once faiss.contrib.torch_utils is imported (pytorch-metric-learning does so), `search` takes no parameters.
        search = getattr(self.index, "search_numpy", self.index.search)
        scores, rows = search(np.ascontiguousarray(queries), k, params=faiss.SearchParameters(sel=chosen))
        order = np.lexsort((rows, -scores), axis=1)
        return np.take_along_axis(scores, order, 1), np.take_along_axis(rows, order, 1)


def read(file: Path, smooth: bool = True) -> Gallery:
    """The gallery in a file, as its comparison says; without `smooth` of plain rows.

    The file may be anyone's: ValueError where it is missing, damaged or senseless.
    """
    plain = embeddings.read(file)
    with reading(file, embeddings.REMEDY):
        comparison = Comparison.from_json(plain.comparison)
        if len(comparison.mean) not in (0, plain.vectors.shape[1]):
            raise ValueError(f"its mean has {len(comparison.mean)} numbers, an embedding {plain.vectors.shape[1]}")
    if not smooth or not embeddings.has_smoothed(file):
        comparison = comparison.unsmoothed()
    rows = plain.vectors if comparison.is_plain else embeddings.read(file, smoothed=True).vectors
    return Gallery(located(file, plain.root), plain.paths, rows, plain.model, comparison=comparison)


def located(file: Path, root: Path) -> Path:
    """Where the images of a file lie: those of a task's gallery where its graph's params.yaml says, in each clone."""
    task = Path(os.path.abspath(file)).parent
    graph = task.parent.parent.parent
    if task.parent.name != "gallery" or not (values := graph / "params.yaml").is_file():
        return root
    from polygrain.config.compose import read_params  # the light install has no need of it

    path = read_params(values).get("paths", {}).get(task.name)
    return graph / path if path else root


def read_of(file: Path, model: str, folder: Path, smooth: bool = True) -> Gallery:
    """`read`, of a file that the model of this digest and folder made; ValueError where another one did."""
    gallery = read(file, smooth)
    require_made(file, gallery.digest, gallery.root, model, folder)
    return gallery


def require_made(file: Path, made_by: str, root: Path, model: str, folder: Path) -> None:
    """ValueError unless the model of this digest and folder made a file of the images in `root`."""
    if made_by != model:
        anew = f", or embed anew, `polygrain embed {root} -o {file} --model {folder}`" if not root.is_file() else ""
        raise ValueError(f"{file} was made by model {made_by}, {folder} is {model}: name its model with --model{anew}")


def model_of(file: Path, model: Path | None) -> Path:
    """The folder of the model that made a file: the one that is named, else the one that the file remembers.

    Where a run has replaced that, it is the one that was kept. ValueError where none is, or it is gone.
    """
    if not file.exists():
        raise ValueError(f"{file} {absent(file)}: give a folder of images, or what `polygrain embed` wrote; {STREAMED}")
    facts = embeddings.metadata(file)
    if is_parquet(file) and "model" not in facts:
        raise ValueError(f"{file} is no table of embeddings: {embeddings.REMEDY}; {STREAMED}")
    if model is not None or "folder" not in facts:
        return model or Path(DEFAULT)
    folder, made_by = file.parent / os.fsdecode(facts["folder"]), facts.get("model", b"").decode("utf-8", "replace")
    here = digest_of(folder)
    if here == made_by:
        return folder
    if digest_of(kept := earlier(folder).get(made_by, folder)) == made_by:
        return kept
    what = "is another one now" if here else "is not there any more"
    raise ValueError(f"{file} was made by model {made_by}, and {folder} {what}: name its folder with --model")


def search(
    query: str | Path | Image.Image,
    embeddings: str | Path,
    model: str | Path | None = None,
    k: int = 10,
    smooth: bool = True,
) -> list[Hit]:
    """The k images most like a query, nearest first, of those in a file that `polygrain embed` wrote by this model.

    `model`: a folder; None for the one that the file remembers. `smooth`: among the smoothed rows, where the file has
    them. ValueError where the file is of another model, and where the query cannot be read.
    """
    folder = model_of(Path(embeddings), model and Path(model))
    gallery = read_of(Path(embeddings), digest(folder), folder, smooth)
    scores, rows = gallery.search(gallery.comparison.query(embed(load(folder), query)), k)
    return [Hit(float(score), gallery.paths[row]) for score, row in zip(scores[0], rows[0], strict=True)]
