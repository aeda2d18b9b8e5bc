"""What an earlier stage wrote, read back: or one sentence that says which file is wrong, how, and what to do."""

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError
from safetensors import SafetensorError

from polygrain.store import sums

# What readers raise on a file that is not there, was cut short, or holds something else; pyarrow's and pydantic's own
# errors are among them.
DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, csv.Error, SafetensorError)
SHOWN = 3


@contextmanager
def reading(file: Path | str, remedy: str) -> Iterator[None]:
    """A block that reads the file: what goes wrong in it becomes a ValueError that ends with the remedy.

    Before the block a file is compared with the list of checksums in its folder, where there is one.
    """
    try:
        if isinstance(file, Path):
            sums.require(file)
        yield
    except DAMAGE as error:
        raise ValueError(f"{file} is missing or damaged ({reason(error)}); {remedy}") from error


def reason(error: Exception) -> str:
    """What the error says, in a line; a missing file's would only repeat the path, a missing key's is the bare key."""
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, ValidationError):
        wrong = [f"{'.'.join(map(str, item['loc'])) or 'content'}: {item['msg']}" for item in error.errors()]
        more = f"; and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        return "; ".join(wrong[:SHOWN]) + more
    return f"it holds no {error}" if isinstance(error, KeyError) else str(error)


def remedy_for(folder: Path) -> str:
    """What to do about a stage's output that is not whole."""
    return f"delete {folder} and run the pipeline again (`dvc repro`), or `dvc checkout` if the cache has it"


def read_json(file: Path) -> dict:
    """A JSON file of a stage's output."""
    with reading(file, remedy_for(file.parent)):
        return json.loads(file.read_text(encoding="utf-8"))
