"""The model behind a collection: its folder, its digest, and its network, which is loaded when it is first asked."""

import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path

import numpy as np
import yaml
from jaxtyping import Float32

from polygrain.collection.embedding import Given, embed
from polygrain.collection.file import Facts
from polygrain.collection.postprocessing.comparison import directions
from polygrain.collection.postprocessing.comparisons import Comparisons
from polygrain.compute import device
from polygrain.compute.errors import first_line
from polygrain.encoder.config import WHOLE_FOLDER, read_config
from polygrain.encoder.kept import digest, digest_of, earlier
from polygrain.encoder.model import Model, load
from polygrain.store.reading import reading

DEFAULT = "data/choice"


class Maker:
    """A model in a folder; or a `network` without one, such as the encoder of a model, with a digest of its own."""

    def __init__(
        self,
        folder: Path | None,
        network: Model | None = None,
        digest: str = "",
        name: str = "",
        home: Path | None = None,
    ) -> None:
        """`home`: where files remember it to be, if it is kept in another folder for them."""
        self.folder, self.name, self.home = folder, name or str(folder), home or folder
        if network is not None:
            self.network = network
        if digest:
            self.digest = digest

    def __str__(self) -> str:
        return self.name

    @cached_property
    def network(self) -> Model:
        made_by, folder = self.digest, self.folder or Path()
        network = load(folder).to(device.best())
        if digest(folder) != made_by:
            raise ValueError(f"{folder} held model {made_by}, and is another one now: call again")
        return network

    @cached_property
    def digest(self) -> str:
        folder = self.folder or Path()
        read_config(folder)  # names what is wrong with it
        with reading(folder / "weights.safetensors", WHOLE_FOLDER):
            return digest(folder)

    def embed(self, given: Given | Iterable[Given] | np.ndarray) -> Float32[np.ndarray, "query dim"]:
        """Embeddings of unit length of images, or of vectors that are such already."""
        return directions(given, "queries") if isinstance(given, np.ndarray) else np.asarray(embed(self.network, given))

    def encoder(self) -> "Maker | None":
        """The encoder that the model was made of, at the model's input; None where the model is that encoder."""
        config = self.network.config
        if config.adaptors is None and config.reduced is None and config.blocks == 1:
            return None
        # What lies behind adapted embeddings was made for them.
        where = next(self.network.parameters()).device
        network = self.network.without_adaptors().without_reduction().to(where)
        return Maker(None, network, f"{self.digest}-encoder", f"encoder of {self}")

    @cached_property
    def comparisons(self) -> Comparisons:
        """The comparisons of the model's own tasks."""
        return Comparisons.read(self.folder)

    def kept_beside(self, file: Path) -> AbstractContextManager[None]:
        """A block that writes a collection's file; a model without a folder is written beside it, this one is not."""
        return nullcontext()

    def task_of(self, root: Path) -> str:
        """The task whose images lie in a folder, as the params.yaml of the model's graph says; "" for none.

        Paths differ between the clones of a team, and so they are no part of the model.
        """
        places = [] if self.folder is None else roots(graph_of(self.folder)).items()
        return next((task for task, place in places if task in self.comparisons.tasks and same(place, root)), "")


def of_file(file: Path, facts: Facts, folder: Path | None = None) -> Maker:
    """The model that made a file: that of a `folder`, else the one that the file remembers.

    Where a run has replaced it, it is the one that was kept. ValueError where it is another one, or gone.
    """
    made = f"{file} was made by model {facts.model}"
    if folder is not None or facts.folder is None:
        maker = Maker(folder or Path(DEFAULT))
        if maker.digest != facts.model:
            # The pipeline makes those of its own tasks.
            anew = f", or embed anew, `polygrain embed {facts.root} -o {file} --model {maker}`" if facts.images else ""
            raise ValueError(f"{made}, {maker} is {maker.digest}: name its model with --model{anew}")
        return maker
    here = digest_of(facts.folder)
    if here == facts.model:
        return Maker(facts.folder)
    if digest_of(kept := earlier(facts.folder).get(facts.model, facts.folder)) == facts.model:
        return Maker(kept, home=facts.folder)
    what = "is another one now" if here else "is not there any more"
    raise ValueError(f"{made}, and {facts.folder} {what}: name its folder with --model")


def graph_of(place: Path) -> Path | None:
    """The folder of the graph in whose data/ or models/ something lies; None for a place outside of any."""
    # Links of DVC lead into its cache; a link of a user's leads to the graph.
    whole = [Path(os.path.abspath(place)), Path(os.path.realpath(place))]
    places = (folder.parent for one in whole for folder in one.parents if folder.name in ("data", "models"))
    return next((graph for graph in places if (graph / "params.yaml").is_file()), None)


def roots(graph: Path | None) -> dict[str, Path]:
    """The folder of each task's images in this clone."""
    if graph is None:
        return {}
    with reading(graph / "params.yaml", "mend it"):
        try:
            values = yaml.load((graph / "params.yaml").read_bytes(), yaml.CSafeLoader)
        except yaml.YAMLError as error:
            raise ValueError(first_line(error)) from error
    paths = values.get("paths") if isinstance(values, dict) else None
    # Another project may have a file of this name.
    return {task: graph / str(path) for task, path in paths.items()} if isinstance(paths, dict) else {}


def same(place: Path, other: Path) -> bool:
    return os.path.realpath(place) == os.path.realpath(other)
