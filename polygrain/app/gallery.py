"""Images by their embeddings: a file that `polygrain embed` wrote, behind a faiss index."""

import os
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import faiss
import numpy as np
from jaxtyping import Bool, Float32, Int64
from PIL import Image

from polygrain.app.embedding import embed
from polygrain.app.listing import STREAMED, absent
from polygrain.comparing.comparison import PLAIN, Comparison
from polygrain.encoder.digest import digest
from polygrain.encoder.model import load
from polygrain.retrieval.approximate import calibrate
from polygrain.retrieval.neighbours import nearest
from polygrain.store import embeddings
from polygrain.store.reading import reading

# To here every row is compared. Beyond, the rows of the lists nearest to the query are.
EXACT_ROWS = 1_000_000
DEFAULT = "data/choice"
RECALL, SAMPLE, DEPTH = 0.99, 200, 10


class Hit(NamedTuple):
    """An image of a gallery, and the cosine of its embedding to the query's."""

    score: float
    path: str


class Gallery:
    """Embeddings `row dim` of unit length, a path below `root` for each, and the digest of the model that made them.

    `recall`: None where every row is compared. Else the share of the 10 nearest that the index finds, measured here on
    a sample of its rows. `tasks`: for each row the number of its first folder among `task_names`. `comparison`: how the
    rows are compared; a share of 0 where they are plain.
    """

    def __init__(
        self,
        root: Path,
        paths: list[str],
        vectors: Float32[np.ndarray, "row dim"],
        digest: str,
        exact: int = EXACT_ROWS,
        comparison: Comparison = PLAIN,
    ) -> None:
        self.root, self.paths, self.digest, self.comparison = root, paths, digest, comparison
        self.recall: float | None = None
        if len(vectors) <= exact:
            self.index = faiss.IndexFlatIP(vectors.shape[1])
            self.index.add(vectors)
        else:
            self.index = lists_of(vectors)
            self.recall = self.widen(vectors)
        tasks = [path.partition("/")[0] if "/" in path else "" for path in paths]
        self.task_names = sorted(set(tasks))
        number = {name: i for i, name in enumerate(self.task_names)}
        self.tasks = np.fromiter((number[task] for task in tasks), np.int64, len(tasks))

    def __len__(self) -> int:
        return len(self.paths)

    def widen(self, vectors: Float32[np.ndarray, "row dim"]) -> float:
        """Looks into as few lists as have the wanted recall; returns the recall of a sample of the rows."""
        rows = np.random.default_rng(0).choice(len(vectors), min(SAMPLE, len(vectors)), replace=False)
        exact = nearest(vectors[rows], vectors, DEPTH)[1]
        shares = calibrate(self.index, lambda: self.index.search(vectors[rows], DEPTH)[1], exact, RECALL)
        return round(float(shares.mean()), 4)

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
        # The fewer rows are chosen, the more lists hold the nearest of them.
        share = 1 if among is None else among.mean()
        queries, probes = np.ascontiguousarray(queries), round(self.probes / share)
        # Once faiss.contrib.torch_utils is imported (pytorch-metric-learning does so), `search` takes no parameters.
        search = getattr(self.index, "search_numpy", self.index.search)
        scores, rows = search(queries, k, params=self.parameters(among, probes))
        if (rows < 0).any():  # the lists looked into hold too few
            scores, rows = search(queries, k, params=self.parameters(among, len(self)))
        order = np.lexsort((rows, -scores), axis=1)
        return np.take_along_axis(scores, order, 1), np.take_along_axis(rows, order, 1)

    @property
    def probes(self) -> int:
        return 1 if self.recall is None else self.index.nprobe

    def parameters(self, among: Bool[np.ndarray, " row"] | None, probes: int) -> faiss.SearchParameters:
        # Even where all rows are: for one query faiss is three times as fast with a choice as without.
        bits = None if among is None else np.packbits(among, bitorder="little")
        chosen = faiss.IDSelectorAll() if bits is None else faiss.IDSelectorBitmap(bits)
        if self.recall is None:
            return faiss.SearchParameters(sel=chosen)
        return faiss.SearchParametersIVF(sel=chosen, nprobe=min(probes, self.index.nlist))


def lists_of(vectors: Float32[np.ndarray, "row dim"]) -> faiss.IndexIVFFlat:
    """The rows in about as many lists as each list has rows."""
    count = max(1, round(len(vectors) ** 0.5))
    index = faiss.index_factory(vectors.shape[1], f"IVF{count},Flat", faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    index.add(vectors)
    index.make_direct_map()
    return index


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
        comparison = replace(comparison, share=0.0)
    smoothed = embeddings.read(file, smoothed=True).vectors if comparison.share else None
    rows = comparison.mixed(plain.vectors, smoothed)
    return Gallery(plain.root, plain.paths, rows, plain.model, comparison=comparison)


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

    ValueError where that is another model now, or gone.
    """
    if not file.exists():
        raise ValueError(f"{file} {absent(file)}: give a folder of images, or what `polygrain embed` wrote; {STREAMED}")
    facts = embeddings.metadata(file)
    if file.suffix == ".parquet" and "model" not in facts:
        raise ValueError(f"{file} is no table of embeddings: {embeddings.REMEDY}; {STREAMED}")
    if model is not None or "folder" not in facts:
        return model or Path(DEFAULT)
    folder, made_by = file.parent / os.fsdecode(facts["folder"]), facts.get("model", b"").decode("utf-8", "replace")
    whole = all((folder / name).is_file() for name in ("config.json", "weights.safetensors"))
    if whole and digest(folder) == made_by:
        return folder
    what = "is another one now" if whole else "is not there any more"
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
    scores, rows = gallery.search(gallery.comparison.query(embed(load(folder), [query])), k)
    return [Hit(float(score), gallery.paths[row]) for score, row in zip(scores[0], rows[0], strict=True)]
