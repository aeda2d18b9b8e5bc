"""Embeddings that a search makes itself, for the next search of the same images by the same model.

They are in `$XDG_CACHE_HOME/polygrain`, by default ~/.cache/polygrain, which no other user can enter.
"""

import hashlib
import os
from pathlib import Path


def place(source: Path, digest: str) -> Path:
    """The file for the embeddings of a folder or CSV by the model of this digest.

    ValueError where no folder for it can be made, as for a user without a home.
    """
    name = hashlib.sha256(os.fsencode(source.resolve())).hexdigest()[:16]
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "polygrain"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:
        raise ValueError(f"no folder for embeddings ({error}): name one by XDG_CACHE_HOME") from error
    return folder / f"{name}-{digest}.parquet"
