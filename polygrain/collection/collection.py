"""A collection: images, how they are compared, and the model that made their rows.

shoes = Collection.of("my/images", model="profiles/shoes/data/choice")
shoes.search(["query.jpg"], k=10)  # for each query the images most like it
shoes = shoes.update()  # what is new, changed or gone
"""

import os
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32
from torch import Tensor

from polygrain.collection import cache, maker
from polygrain.collection.asked import Asked
from polygrain.collection.changes import Changes, changes
from polygrain.collection.duplicates import Graph, Pair, duplicates, graph_of, odd
from polygrain.collection.embedding import BATCH, Given
from polygrain.collection.file import STREAMED, File
from polygrain.collection.index import Index
from polygrain.collection.listing import Listing, absent, find
from polygrain.collection.maker import Maker
from polygrain.collection.postprocessing.comparison import Comparison
from polygrain.collection.stored import Images, located, stored_beside
from polygrain.collection.update import rejected_file, update
from polygrain.runner.progress import progress
from polygrain.store.tables import read_csv

Rows = Float32[np.ndarray, "row dim"]
Place = str | os.PathLike  # type: ignore[type-arg]  # `isinstance` takes no parameters
# Images whose bytes prove that a folder is the one that was embedded.
CHECKED = 20


class Hit(NamedTuple):
    """An image of a collection, and the cosine of its row and the query's."""

    score: float
    path: str


class Collection:
    """Rows of unit length, a path for each, and their facts; a collection never changes.

    `facts` say how the rows are compared, `maker` is the model; `paths` are below `root`.
    """

    def __init__(self, file: File, made_by: Maker, root: Path | None = None) -> None:
        self.file, self.facts, self.maker = file, file.facts, made_by
        self.comparison: Comparison = file.comparison
        self.root = root or located(file)

    @classmethod
    def of(
        cls,
        images: Place | Images,
        model: Place | Maker = maker.DEFAULT,
        *,
        file: Place | None = None,
        task: str | None = None,
        alike: int | None = None,
        choose: bool = False,
        smooth: bool = True,
        batch: int = BATCH,
    ) -> "Collection":
        """The images below a folder, or named by a CSV, as a collection of a model; new images are embedded.

        `file`: the .parquet to keep it in, by default one in your cache folder. `task`: the model's task by which the
        images are compared. `alike`: about how many images show the same thing. An earlier file gives both by default;
        `choose` chooses mean, smoothing and task anew. ValueError where no image can be read.
        """
        if alike is not None and alike < 2:
            raise ValueError(f"alike is {alike}; allowed is 2 or more: about how many images show the same thing")
        made_by = model if isinstance(model, Maker) else Maker(Path(model))
        output = None if file is None else Path(file)
        if output is not None:
            require_parquet(output)
        given = find(Path(images)) if isinstance(images, str | os.PathLike) else images
        output = output or cache.place(given.source or given.root, made_by.digest)
        update(made_by, given, output, Asked(task, alike, choose, smooth), batch)
        return cls(File(output), made_by)

    @classmethod
    def of_vectors(
        cls, vectors: np.ndarray | Tensor, names: Iterable[object] | None = None, alike: int | None = None
    ) -> "Collection":
        """The collection of vectors of any encoder: centred, behind a layer of their own clusters, and smoothed
        by each other. Fewer than 100 stay as they are.

        `names`: a text for each row, by default its number. ValueError where vectors or names do not fit.
        """
        from polygrain.collection.layer import learn  # scikit-learn takes a second, which a search need not wait for

        return cls(*learn(vectors, names, alike))

    @classmethod
    def open(cls, file: Place, model: Place | None = None, root: Place | None = None) -> "Collection":
        """The collection in a file. `model`: its model's folder, if it is not where the file remembers it, or of
        vectors their layer's file; `root`: the folder of the images, if they have moved.

        ValueError where the file is missing, damaged or senseless, and where the model or the images are others.
        """
        place = Path(file)
        if not place.exists():
            instead = f"give a folder of images, or what `polygrain embed` wrote; {STREAMED}"
            raise ValueError(f"{place} {absent(place)}: {instead}")
        opened = File(place)
        given = None if model is None else Path(model)
        if opened.facts.root is None:
            from polygrain.collection.layer import Layer, file_of

            return cls(opened, Layer(given or file_of(place), opened.facts.model))
        made_by = maker.of_file(place, opened.facts, given)
        if root is not None:
            require_same_images(opened, Path(root))
        return cls(opened, made_by, None if root is None else Path(root).resolve())

    def __len__(self) -> int:
        return self.file.count

    def __repr__(self) -> str:
        return f"<Collection of {len(self):,} rows in {self.file.place}, by {self.maker}, {self.comparison}>"

    @cached_property
    def paths(self) -> list[str]:
        return self.file.paths()

    @property
    def rows(self) -> Rows:
        """The rows as they are searched, for an index or a database of your own."""
        return self.file.rows("searched")

    @property
    def plain(self) -> Rows:
        """The rows as they ask, not smoothed: smoothed ones know their neighbours already."""
        return self.file.rows("plain")

    @cached_property
    def index(self) -> Index:
        return Index(self.rows)

    @cached_property
    def plain_index(self) -> Index:
        return Index(self.plain) if self.is_smoothed else self.index

    def query(self, images: Given | Iterable[Given] | np.ndarray) -> Rows:
        """Image files, opened images or vectors of the model (or encoder) as they ask, in any index of `rows`."""
        return self.comparison.query(self.maker.embed(images))

    def search(self, images: Given | Iterable[Given] | np.ndarray, k: int = 10, smooth: bool = True) -> list[list[Hit]]:
        """For each query the k images most like it, nearest first; queries are as in `query`.

        Without `smooth` among the plain rows.
        """
        found = (self.index if smooth else self.plain_index).search(self.query(images), k)
        return [
            [Hit(float(score), self.paths[place]) for score, place in zip(*of_one, strict=True)]
            for of_one in zip(*found, strict=True)
        ]

    @cached_property
    def graph(self) -> Graph:
        """The nearest others of each image, by plain rows."""
        return graph_of(
            self.plain_index.rows(np.arange(len(self))), partial(progress, description="neighbours", unit="part")
        )

    def near_duplicates(self, above: float = 0.95) -> list[Pair]:
        """All pairs of images from a cosine on, the most alike first; of a million pairs no more are looked for."""
        return duplicates(self.plain_index.rows(np.arange(len(self))), self.graph, above)

    def odd(self) -> list[Pair]:
        """The images that are like no other, the oddest first, each with its nearest."""
        return odd(self.graph)

    def update(self, *, choose: bool = False, batch: int = BATCH) -> "Collection":
        """The collection of its images as they are now, in the same file; new and changed images alone are embedded.

        Where their number has doubled, mean and smoothing are chosen anew. ValueError for a collection of the pipeline.
        """
        root, file = self.root or self.images.root, self.file.place
        if not self.facts.images:
            raise ValueError(f"{file} is made by the pipeline: `polygrain run` brings it up to date")
        source = root / self.facts.source.name if self.facts.source else root
        # The folder is asked anew how its tasks are compared.
        made_by = Maker(self.maker.folder, home=self.maker.home) if self.maker.folder else self.maker
        if made_by.digest != self.facts.model:
            raise ValueError(f"{made_by} is another model now: `Collection.of` embeds all images anew by it")
        return Collection.of(source, made_by, file=file, choose=choose, smooth=not self.facts.smooth, batch=batch)

    def save(self, file: Place) -> None:
        """Writes the collection to a .parquet, for `Collection.open`, `polygrain search` and any reader of Parquet.

        Beside one of vectors is their layer, FILE.layer.npz.
        """
        require_parquet(Path(file))
        facts, home = replace(self.facts, root=self.root), self.maker.home
        if self.root is not None and self.facts.source is not None:
            facts = replace(facts, source=self.root / self.facts.source.name)
        if home is not None:
            facts = replace(facts, folder=home.resolve())
        with self.maker.kept_beside(Path(file)):
            self.file.write(Path(file), facts)

    def changes(self, since: "Collection | Place | None") -> Changes:
        """The rows to write to a database with an earlier collection, and those to delete from it.

        None: it is empty. Ask it by `query` of this collection. An earlier file is read without its model.
        """
        before = File(Path(since)) if isinstance(since, Place) else since
        return changes(self.file, before.file if isinstance(before, Collection) else before)

    @property
    def is_smoothed(self) -> bool:
        return self.file.is_smoothed

    @property
    def left_out_file(self) -> Path:
        return rejected_file(self.file.place)

    @property
    def left_out(self) -> dict[str, str]:
        """The files that have no row, and why."""
        is_here = self.root is not None and self.left_out_file.exists()
        return {row["path"]: row["reason"] for row in read_csv(self.left_out_file)} if is_here else {}

    @cached_property
    def images(self) -> Images:
        """The images themselves: files below the root, or as the pipeline stored them. ValueError where neither is
        there, and of vectors."""
        if self.facts.root is None:
            raise ValueError("the collection is of vectors and has no images: `Collection.of_vectors` makes it anew")
        if self.root is not None and any((self.root / path).is_file() for path in self.paths):
            return Listing(self.root, self.paths, {}, self.facts.source)
        return stored_beside(self.file, self.root, self.paths)

    def by(self, other: Maker, smooth: bool = False) -> "Collection":
        """The same images in the same order by another model, kept in your cache folder.

        ValueError where images cannot be read any more.
        """
        # Its own file, whatever else is embedded of the same folder.
        place = cache.place(self.file.place, other.digest)
        task = self.facts.task if self.facts.task in other.comparisons.tasks else None
        alike = self.facts.alike if task else self.facts.comparison.alike
        found = Collection.of(self.images, other, file=place, task=task, alike=alike, smooth=smooth)
        if found.paths != self.paths:
            lost = len(self) - len(found)
            raise ValueError(f"{lost:,} of the images in {self.root} cannot be read any more: embed them anew")
        return found


def require_same_images(file: File, root: Path) -> None:
    """ValueError where some images below a folder are not those that have rows in a file."""
    if not root.is_dir():
        raise ValueError(f"{root} is no folder: name the one in which the images of {file.place} are now")
    hashes = list(zip(file.paths(), file.text("sha256"), strict=True))
    images = Listing(root, [path for path, _ in hashes], {})
    for path, sha256 in hashes[:: max(1, len(hashes) // CHECKED)]:
        if images.missing(path) or (sha256 and images.sha256(path) != sha256):
            anew = f": embed anew, `polygrain embed {root} -o {file.place}`" if file.facts.images else ""
            raise ValueError(f"{root / path} is not the image that {file.place} has a row of{anew}")


def require_parquet(file: Path) -> None:
    """ValueError for a file that no collection can be written to."""
    if file.suffix != ".parquet":
        raise ValueError(f"{file} does not end in .parquet")
    if file.is_dir():
        raise ValueError(f"{file} is a folder: name a file")
    if not file.parent.is_dir():
        raise ValueError(f"{file.parent} is not a folder: make it, or choose another")
