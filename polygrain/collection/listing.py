"""List the images to embed: all below a folder, or those that a CSV names. No image is opened."""

import csv
import hashlib
import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from polygrain.collection.file import STREAMED
from polygrain.sources.decode import Picture, decode_all, opened, picture, upright
from polygrain.sources.folder import SUFFIXES, classed, composed, misnamed, printable, summary, walk
from polygrain.store.reading import reading
from polygrain.store.rectangle import Shape, Unreadable


class Listing(NamedTuple):
    """Images as paths below a folder, and {path: reason} of rejected files; `source`: the CSV of their names."""

    root: Path
    paths: list[str]
    rejected: dict[str, str]
    source: Path | None = None

    def states(self) -> list[str]:
        """Size, times and inode of each file (`cp -p` keeps the first two), or the error that hides them."""
        states = []
        for path in self.paths:
            try:
                status = os.stat(self.root / path)
                states.append(f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}")
            except OSError as error:
                states.append(str(error.errno))
        return states

    @property
    def classes(self) -> list[str]:
        """The class of each image: its first folder."""
        found = classed(self.paths)
        return [found[path] for path in self.paths]

    def missing(self, path: str) -> str | None:
        """Why there is no such image; a link could have taken its place."""
        return outside(self.root, path)

    def image(self, path: str, side: int | None = None) -> Image.Image:
        """An image, upright, as large as it is, or smaller if it will be scaled to `side`."""
        with opened(self.root / path) as stream:
            return upright(stream, side)

    def rectangle(self, path: str, side: int, shape: Shape) -> UInt8[np.ndarray, "y x 3"]:
        """An image as a model of this side takes it."""
        with opened(self.root / path) as stream:
            return picture(stream, side, shape).pixels

    def pictures(self, rows: slice, side: int, shape: Shape) -> list[Picture | str]:
        """The images of these paths as a model of this side takes them, or why there is none."""
        return list(decode_all(self.root, self.paths[rows], side, shape))

    def sha256(self, path: str) -> str | None:
        """Of an image file; None where it cannot be read."""
        try:
            with opened(self.root / path) as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except Unreadable:
            return None

    def fingerprint(self) -> str:
        return fingerprint(dict(zip(self.paths, self.states(), strict=True)))


def fingerprint(states: Mapping[str, str]) -> str:
    """SHA-256 over the names and states of files."""
    sha = hashlib.sha256()
    for path, state in states.items():
        sha.update(f"{path}\0{state}\0".encode())
    return sha.hexdigest()


def find(source: Path) -> Listing:
    """The images of a folder, or of a CSV; ValueError where there is no such thing, or no image in it."""
    if source.is_dir():
        root = source.resolve()
        listing = Listing(root, *walk(root))
    elif source.suffix.lower() == ".csv" and source.is_file():
        listing = named(source.resolve())
    else:
        what = "is neither a folder nor a .csv" if source.exists() else absent(source)
        raise ValueError(f"{source} {what}: give a folder of images, or a CSV with a column path; {STREAMED}")
    if not listing.paths:
        raise ValueError(f"{source} holds no image ({', '.join(SUFFIXES)}); {summary(listing.rejected)}; {STREAMED}")
    return listing


def absent(source: Path) -> str:
    """What is wrong with a path that leads to no file: an address, as `s3:/bucket`, may well exist."""
    is_address = bool(source.parts) and source.parts[0].endswith(":")
    return "is an address, which is not read here" if is_address else "does not exist"


def named(file: Path) -> Listing:
    """The images that the column `path` of a CSV names, relative to its folder, in its order.

    Other columns may hold any text, in any encoding.
    """
    csv.field_size_limit(sys.maxsize)
    with (
        reading(file, "give a CSV in UTF-8 with one column path"),
        file.open(newline="", encoding="utf-8-sig", errors="surrogateescape") as lines,
    ):
        reader = csv.DictReader(lines, strict=True)
        try:
            if (reader.fieldnames or []).count("path") != 1:
                raise ValueError(f"its columns are {printable(', '.join(reader.fieldnames or ())) or 'none'}")
            entries = [row["path"] or "" for row in reader]
        except csv.Error as error:
            raise ValueError(f"line {reader.reader.line_num}: {error}") from error
    root = file.parent
    paths: dict[str, None] = {}
    rejected: dict[str, str] = {}
    spelled = cache(lambda: {composed(path): path for path in walk(root)[0]})
    for entry in entries:
        path, name = os.path.relpath(root / entry, root), printable(entry)
        reason = misnamed(path)
        if not (reason or path.isascii() or (root / path).exists()):
            path = spelled().get(composed(path), path)
        if name in rejected or path in paths:
            rejected[name] = "named twice"
        elif reason := reason or outside(root, path):
            rejected[name] = reason
        else:
            paths[path] = None
    return Listing(root, list(paths), rejected, file)


def outside(root: Path, path: str) -> str | None:
    """Why a path is not one of an image below a folder; None where it is."""
    if "\0" in path:
        return "not a name of a file"
    home = os.path.realpath(root)
    if os.path.commonpath([home, os.path.realpath(root / path)]) != home:
        return "leads outside the folder"
    return None if (root / path).is_file() else "no such file"
