"""Tars, or Parquet files, as a kind of image source: one, a folder of them, or a pattern of names."""

import re
from pathlib import Path, PurePosixPath

from polygrain.sources.kind import Ask, Found, Kind, Listing
from polygrain.sources.look import Look, look_through
from polygrain.sources.streams import stream
from polygrain.sources.streams.parquet import holds_embeddings

PATTERN = re.compile(r"[*?\[]")
TAR, PARQUET = stream.SUFFIX.values()


class Shards(Kind):
    def __init__(self, name: str) -> None:
        self.name, self.suffix = name, stream.SUFFIX[name]

    def find(self, given: str, listing: Listing | None) -> Found | None:
        """ValueError for a folder that holds images, too, or tars and Parquet files that do not go together."""
        where, pattern = Path(given), "*"
        suffix = where.suffix.lower()
        if listing:
            is_here = any(name.lower().endswith(self.suffix) for name in listing[1])
            suffix = suffix_in(where, *listing) if is_here else ""
        elif not where.exists() and (PATTERN.search(where.name) or suffix in (TAR, PARQUET)):
            where, pattern, suffix = where.parent, where.name, suffix if suffix == PARQUET else TAR
        if suffix != self.suffix:
            return None
        return Found(self.name, where, *stream.find(where, self.name, pattern).content(), pattern)

    def look(self, found: Found) -> Look:
        entries = stream.find(Path(found.path), self.name, found.files).entries()
        return look_through(entries, sum(found.classes.values()))

    def open(self, raw: Path, ask: Ask) -> stream.Stream:
        return stream.find(raw, self.name, ask.files)


def suffix_in(path: Path, images: list[str], others: dict[str, str]) -> str:
    """Whether tars or Parquet files in a folder hold its images; files of embeddings, as `polygrain embed` writes them,
    hold none. ValueError for a folder without images whose tars or Parquet files lie deeper.
    """
    named = {name: PurePosixPath(name) for name, reason in others.items() if reason != "hidden"}
    streamed = [name for name, place in named.items() if place.suffix.lower() in (TAR, PARQUET)]
    files = [path / name for name in streamed if all("=" in part for part in named[name].parts[:-1])]
    files = [file for file in files if not holds_embeddings(file)]
    tars, tables = ({file.stem for file in files if file.suffix.lower() == suffix} for suffix in (TAR, PARQUET))
    if not files:
        if streamed and not images:
            folders = sorted({str((path / name).parent) for name in streamed})
            which = "the folder" if len(folders) == 1 else "each of the folders, as a task,"
            raise ValueError(f"{path} holds no image, but {streamed[0]}: give {which} {', '.join(folders[:10])}")
        return ""
    # Beside each of its tars img2dataset writes a Parquet file of the same name, with no images.
    if images or (tars and not tables <= tars):
        other = "images" if images else "tars"
        raise ValueError(
            f"{path} holds {files[0].name} beside {other}: give '{path}/*{files[0].suffix}' to read such files alone, "
            f"or move them away to read the {other}"
        )
    return TAR if tars else PARQUET
