"""A stream of images as pictures in a store: decoded side by side in bounded memory, and resumed shard by shard."""

import json
import logging
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from polygrain.compute.cores import cores
from polygrain.sources.decode import Picture, picture, reading
from polygrain.sources.streams.entry import Entry
from polygrain.sources.streams.stream import Stream, unlike
from polygrain.store.arrays import Writer, shard_file
from polygrain.store.coded import Coding
from polygrain.store.drafts import drafted
from polygrain.store.rectangle import Shape, Unreadable, largest

log = logging.getLogger(__name__)
WAITING = 256
WAITING_BYTES = 128 * 2**20
BLOCK = 256

Outcome = Picture | str


class Part(NamedTuple):
    """The results of the entries up to the end of one shard, and the place (file, entry) after them.

    A row is [path, class name, width, height, bytes, SHA-256, hash of its pixels], of an entry that was left out [path,
    reason].
    """

    end: tuple[int, int]
    rows: list[list[Any]]
    rejected: list[list[str]]


def decoded(entries: Iterator[Entry], attempt: Callable[[Entry], Outcome]) -> Iterator[tuple[Entry, Outcome]]:
    """Every entry, without its bytes, with its picture or the reason why there is none, in order."""
    held = 0
    waiting: deque[tuple[Entry, int, Future[Outcome]]] = deque()
    with ThreadPoolExecutor(cores()) as pool:
        try:
            for entry in entries:
                size = 0 if isinstance(entry.content, Unreadable) else len(entry.content)
                waiting.append((entry._replace(content=b""), size, pool.submit(attempt, entry)))
                held += size
                while len(waiting) > WAITING or (held > WAITING_BYTES and waiting):
                    done, size, outcome = waiting.popleft()
                    held -= size
                    yield done, outcome.result()
            for done, _, outcome in waiting:
                yield done, outcome.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


class Ingestion:
    """The pictures of a stream below `folder`, with a file of their `Part` for each full shard.

    A run that was killed continues after the last full shard.
    """

    def __init__(self, folder: Path, side: int, shape: Shape = "crop", coding: Coding | None = None) -> None:
        self.side, self.shape = side, shape
        self.folder, self.pixels, self.done = folder, folder / "pixels.zarr", 0
        while self.part_file(self.done).exists() and shard_file(self.pixels, self.done, 3).exists():
            self.done += 1
        if self.done:
            log.info("continues after %d full shards (%s)", self.done, folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        self.writer = Writer(self.pixels, largest(side, shape), "uint8", coding, self.done)
        self.last = Part((0, 0), [], [])

    def part_file(self, number: int) -> Path:
        return self.folder / f"{number:06d}.json"

    def parts(self) -> Iterator[Part]:
        """All parts so far, in order."""
        for number in range(self.done):
            yield Part(*json.loads(self.part_file(number).read_text(encoding="utf-8")))
        yield self.last

    def close_part(self, entry: Entry) -> None:
        """Writes the part of the shard that is full since this entry: from here on it survives a kill."""
        part = self.last._replace(end=(entry.file, entry.number + 1))
        with drafted(self.part_file(self.done)) as draft:
            draft.write_text(json.dumps(part), encoding="utf-8")
        self.done, self.last = self.done + 1, Part(part.end, [], [])

    def run(self, stream: Stream) -> Iterator[Entry]:
        """Stores what is not stored yet; yields each entry once it is stored or left out.

        The first image says whether the stream has labels. Images that differ from it are left out, and so are copies.
        """
        first: dict[str, tuple[str, str]] = {}
        label, place = None, (0, 0)
        for part in self.parts():
            first |= {shown: (path, sha256) for path, *_, sha256, shown in part.rows}
            label = part.rows[0][1] if part.rows and label is None else label
            place = max(place, (part.end[0], part.end[1]))
        block: list[np.ndarray] = []

        def attempt(entry: Entry) -> Outcome:
            if isinstance(entry.content, Unreadable):
                return str(entry.content)
            try:
                with reading(entry.path):
                    return picture(BytesIO(entry.content), self.side, self.shape)
            except Unreadable as reason:
                return str(reason)

        for entry, outcome in decoded(stream.entries(*place), attempt):
            if not isinstance(outcome, str):
                outcome = unlike(entry.class_name, label) or outcome.copied(first) or outcome
            if isinstance(outcome, str):
                self.last.rejected.append([entry.path, outcome])
            else:
                label, first[outcome.shown] = entry.class_name, (entry.path, outcome.sha256)
                self.last.rows.append([entry.path, entry.class_name, *outcome[1:], outcome.shown])
                block.append(outcome.pixels)
            if len(block) == min(BLOCK, self.writer.room):
                self.writer.append(block)
                block = []
                if self.writer.shards > self.done:
                    self.close_part(entry)
            yield entry
        if block:
            self.writer.append(block)
        self.writer.close()
