"""Which model made an embedding: one short name for its weights and config."""

import hashlib
from pathlib import Path


def digest(folder: Path) -> str:
    """The first 16 hex digits of SHA-256 over a model folder's config.json and weights.safetensors.

    FileNotFoundError names the file that is missing.
    """
    sha = hashlib.sha256()
    for name in ("config.json", "weights.safetensors"):
        with (folder / name).open("rb") as file:
            sha.update(hashlib.file_digest(file, "sha256").digest())
    return sha.hexdigest()[:16]
