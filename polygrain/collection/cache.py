"""Embeddings that a search makes itself, for the next search of the same images by the same model.

They are in `$XDG_CACHE_HOME/polygrain`, by default ~/.cache/polygrain, which no other user can enter.
"""

import hashlib
import os
from pathlib import Path


def place(source: Path, digest: str) -> Path:
    """The file for the embeddings of a folder or CSV by the model of this digest."""
    name = hashlib.sha256(os.fsencode(source.resolve())).hexdigest()[:16]
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "polygrain"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:  # a user of a container may have no home
        raise ValueError(
            f"no folder for embeddings ({error}): let XDG_CACHE_HOME name one that you can write to"
        ) from error
    return folder / f"{name}-{digest}.parquet"
