"""The name of a model, by its bytes, and the models that a run has replaced.

They are `models/<digest>` beside data/: a search in their embeddings needs them.
"""

import hashlib
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from polygrain.runner import outputs


def digest(folder: Path) -> str:
    """The first 16 hex digits of SHA-256 over a model folder's config.json and weights.safetensors.

    FileNotFoundError names the file that is missing.
    """
    sha = hashlib.sha256()
    for name in ("config.json", "weights.safetensors"):
        with (folder / name).open("rb") as file:
            sha.update(hashlib.file_digest(file, "sha256").digest())
    return sha.hexdigest()[:16]


def digest_of(model: Path) -> str | None:
    """The digest of a model folder; None where there is no model."""
    try:
        return digest(model)
    except (FileNotFoundError, NotADirectoryError):
        return None


def earlier(model: Path) -> dict[str, Path]:
    """The models, by digest, that were kept of the graph in whose data/ a model lies."""
    graph = next((place.parent for place in model.parents if place.name == "data"), None)
    kept = [] if graph is None else sorted((graph / "models").glob("*"))
    return {place.name: place for place in kept if not place.suffix}


@contextmanager
def keeping(graph: Path, stages: Collection[str]) -> Iterator[None]:
    """Keeps the models in a graph's folder that are others when these stages have run in the block."""
    models, choice = graph / "models", graph / "data/choice"
    places = [choice, choice / "without_training"] if "choice" in stages else []
    for place in places:
        if (name := digest_of(place)) and not (models / name).exists():
            with outputs.folder(models / name) as draft:
                shutil.copytree(place, draft, ignore=shutil.ignore_patterns("without_training"), dirs_exist_ok=True)
    try:
        yield
    finally:
        for name in filter(None, map(digest_of, places)):
            shutil.rmtree(models / name, ignore_errors=True)
