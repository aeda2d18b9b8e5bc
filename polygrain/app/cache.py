"""Embeddings that a search made by itself, found again while images and model are as they were.

They lie in `$XDG_CACHE_HOME/polygrain`, by default ~/.cache/polygrain, which no other user can enter.
"""

import hashlib
import os
from pathlib import Path


def place(source: Path, digest: str) -> Path:
    """Where the embeddings of a folder, CSV or file of embeddings by the model of this digest are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    name = hashlib.sha256(os.fsencode(source.resolve())).hexdigest()[:16]
    folder = Path(base) / "polygrain"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / f"{name}-{digest}.parquet"
