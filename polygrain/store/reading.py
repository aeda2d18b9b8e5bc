"""Errors of reading as one sentence: the file, the fault, the remedy."""

import csv
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import pyarrow as pa
from pydantic import ValidationError
from safetensors import SafetensorError

# Errors of damaged bytes. TypeError, AttributeError and RuntimeError are our own mistakes, not the file's.
DAMAGE = (OSError, ValueError, KeyError, csv.Error, SafetensorError, pa.ArrowException, BadZipFile, zlib.error)


@contextmanager
def reading(file: Path | str, remedy: str) -> Iterator[None]:
    """A block that reads the file: an error in it becomes a ValueError that names the file and ends with the remedy."""
    try:
        yield
    except DAMAGE as error:
        reason = f"it holds no {error}" if isinstance(error, KeyError) else str(error)
        if isinstance(error, FileNotFoundError):
            reason = "there is no such file"
        elif isinstance(error, ValidationError):
            reason = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()[:3])
        raise ValueError(f"{file} is missing or damaged ({reason}); {remedy}") from error


def starts_with(file: Path, *firsts: bytes) -> bool:
    """Whether a file begins with one of these bytes, which tell its kind."""
    with file.open("rb") as stream:
        return stream.read(16).startswith(firsts)


def read_lines(file: Path, remedy: str) -> list[str]:
    """The lines of a text, as editors show them, without a byte order mark.

    What else Unicode takes for a break, such as U+2028, stays in its line.
    """
    with reading(file, remedy):
        lines = file.read_bytes().decode("utf-8-sig").replace("\r\n", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


def remedy_for(folder: Path) -> str:
    """The remedy for an incomplete output of a stage."""
    return f"delete {folder} and run the pipeline again (`dvc repro`), or `dvc checkout` if the cache has it"


def read_json(file: Path) -> dict[str, Any]:
    """A JSON file of a stage's output."""
    with reading(file, remedy_for(file.parent)):
        return json.loads(file.read_text(encoding="utf-8"))
