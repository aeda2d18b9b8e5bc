"""Before several processes work together: whether all have the same sources, libraries, values and inputs."""

import hashlib
import json
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from polygrain.compute import processes
from polygrain.store.work import digest

ROOT = Path(__file__).parents[2]
SMALL = 2**26  # bytes
LOADED = "the libraries"
LIBRARIES = ("torch", "numpy", "timm", "faiss-cpu", "faiss-gpu-cu12", "zarr")


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def sources() -> str:
    """The digest of all that a stage might run."""
    files = sorted([*(ROOT / "stages").rglob("*.py"), *(ROOT / "polygrain").rglob("*.py")])
    return digest_of("".join(f"{file.relative_to(ROOT)} {digest(file)}\n" for file in files))


def libraries() -> str:
    """Python and what computes, with versions; what is not installed is left out."""
    found = [sys.version.split()[0]]
    for name in LIBRARIES:
        try:
            found.append(f"{name} {version(name)}")
        except ImportError:
            continue
    return ", ".join(found)


def content(path: Path) -> str:
    """The digest of an input: small files by content, others by size and path."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    sizes = {file: file.stat().st_size for file in files if file.exists()}
    words = {file: digest(file) if size <= SMALL else str(size) for file, size in sizes.items()}
    return digest_of("".join(f"{word} {file.relative_to(path)}\n" for file, word in words.items()))


def require(stage: str, values: Mapping[str, object], inputs: Mapping[str, Path]) -> None:
    """ValueError names the processes that differ from the first one, and in what; nothing is compared for one."""
    if processes.count() == 1:
        return
    facts = {"the sources in stages/ and polygrain/": sources(), LOADED: libraries()}
    facts |= {f"the values of {stage}, {name}": digest_of(str(value)) for name, value in values.items()}
    facts |= {f"the input {name} ({path})": content(path) for name, path in inputs.items()}
    first, *others = (json.loads(words) for words in processes.gather_bytes(json.dumps(facts).encode()))
    wrong = []
    for number, other in enumerate(others, 1):
        if apart := [name for name in {**first, **other} if first.get(name) != other.get(name)]:
            pairs = [f"{name}: {other[name]}, there {first[name]}" if name == LOADED else name for name in apart]
            wrong.append(f"rank {number} differs from rank 0 in {'; '.join(pairs)}")
    if wrong:
        raise ValueError("\n".join([*wrong, "give all machines the same commit, values and inputs, and start again"]))
