"""A stream of images as squares in a store: decoded side by side in bounded memory, and resumable shard by shard."""

import logging
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import numpy as np

from polygrain.sources.decode import Picture, picture
from polygrain.sources.streams.entry import Entry
from polygrain.sources.streams.ledger import Ledger
from polygrain.sources.streams.stream import Stream
from polygrain.store.arrays import Writer, shard_file
from polygrain.store.coded import Coding
from polygrain.store.square import Shape, Unreadable

log = logging.getLogger(__name__)
WAITING = 256
WAITING_BYTES = 128 * 2**20
BLOCK = 256

Outcome = Picture | str


def decoded(entries: Iterator[Entry], attempt: Callable[[Entry], Outcome]) -> Iterator[tuple[Entry, Outcome]]:
    """Every entry, without its bytes, with its picture or the reason why there is none, in order."""
    waiting, held = deque(), 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            for entry in entries:
                taken = 0 if isinstance(entry.content, Unreadable) else len(entry.content)
                waiting.append((entry._replace(content=b""), taken, pool.submit(attempt, entry)))
                held += taken
                while len(waiting) > WAITING or (held > WAITING_BYTES and waiting):
                    done, size, outcome = waiting.popleft()
                    held -= size
                    yield done, outcome.result()
            while waiting:
                done, _, outcome = waiting.popleft()
                yield done, outcome.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def resumed(pixels: Path, ledger: Ledger, side: int, coding: Coding | None) -> Writer:
    """A writer behind the shards that an earlier run has finished; where one of them is gone, from the start."""
    shape, shards = (side, side, 3), ledger.reached.shards
    if not all(shard_file(pixels, number, len(shape)).exists() for number in range(shards)):
        ledger.clear()
        shards = 0
    if shards:
        log.info("continues behind %d images (%s)", len(ledger), pixels.parent)
    else:
        shutil.rmtree(pixels, ignore_errors=True)
    return Writer(pixels, shape, "uint8", coding, shards)


def ingest(stream: Stream, writer: Writer, ledger: Ledger, max_pixels: int, shape: Shape) -> Iterator[Entry]:
    """Stores what the ledger has not reached yet; yields each entry once it is stored or left out.

    The first image says whether the stream has labels. Images that differ from it are left out, and so are copies.
    """
    size = writer.row_shape[0]

    def attempt(entry: Entry) -> Outcome:
        if isinstance(entry.content, Unreadable):
            return str(entry.content)
        try:
            return picture(BytesIO(entry.content), size, max_pixels, shape)
        except Unreadable as reason:
            return str(reason)

    reached, labelled = ledger.reached, ledger.is_labelled
    number = writer.rows
    block: list[np.ndarray] = []
    most = min(BLOCK, writer.room)
    for entry, outcome in decoded(stream.entries(reached.file, reached.skip), attempt):
        reason = outcome if isinstance(outcome, str) else differs(labelled, entry.class_name)
        reason = reason or ledger.keep(number, entry.path, entry.class_name, outcome[1:])
        if reason:
            ledger.reject(entry.path, reason)
        else:
            labelled = bool(entry.class_name)
            block.append(outcome.pixels)
            number += 1
        if len(block) == most:
            shards = writer.shards
            writer.append(np.stack(block))
            block, most = [], min(BLOCK, writer.room)
            if writer.shards > shards:
                ledger.reach(entry.file, entry.index + 1, writer.shards)
        yield entry
    if block:
        writer.append(np.stack(block))


def differs(labelled: bool | None, class_name: str) -> str | None:
    """Why an image does not go with the first one."""
    if labelled in (None, bool(class_name)):
        return None
    return (
        "it has no label, and the first image has one" if labelled else "it has a label, and the first image has none"
    )
