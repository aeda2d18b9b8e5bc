"""A look at images before a run: damaged ones, copies and sizes, from headers and first bytes."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from polygrain.compute.counted import counted
from polygrain.sources import archive
from polygrain.sources.decode import reading, sides_of
from polygrain.sources.streams.entry import Entry
from polygrain.store.rectangle import LONGEST, SQUARISH

MOST, MOST_STREAMED = 10_000, 1_000  # images that are opened; those of a stream are read whole
HEAD = 4096  # bytes by which files of one size are compared before all of them are
AT_ONCE = 16  # over a network each file is waited for

Fact = tuple[str, tuple[int, int], object]  # class of an image, shorter and longer side, a key that copies have, too


class Look(NamedTuple):
    """Images that a run will leave out, by reason, further remarks, and the shorter and longer sides of the images."""

    left_out: Counter[str]
    lines: list[str]
    sides: list[tuple[int, int]]


class Sizes(NamedTuple):
    """`shorter`: the median shorter side, px, in the task where it is largest; None where no image was opened.

    `seen`: the area that the encoder sees of an image, in squares of its side.
    """

    shorter: int | None = None
    seen: float = 1.0


def sizes_of(looks: Iterable[Look]) -> Sizes:
    """The sizes of the images of all tasks."""
    found = [np.array(look.sides) for look in looks if look.sides]
    if not found:
        return Sizes()
    ratios = np.concatenate([sides[:, 1] / sides[:, 0] for sides in found])
    seen = np.where(ratios > SQUARISH, np.minimum(ratios, LONGEST), 1)
    return Sizes(int(max(np.median(sides[:, 0]) for sides in found)), float(seen.mean()))


def look_at(path: Path, images: Mapping[str, str]) -> Look:
    """A look at {path: class} of a folder or zip, in the order of a run; where there are many, at some of them."""
    order = sorted(images, key=lambda name: (images[name], name))[:: -(-len(images) // MOST) or 1]
    with archive.opener(path) as opened, ThreadPoolExecutor(AT_ONCE) as pool:

        def fact(name: str) -> Fact:
            size, file = opened(name)
            with reading(name), file as stream:
                return images[name], sides_of(stream), (size, stream.seek(0), stream.read(HEAD))

        def whole(name: str) -> bytes:
            with reading(name), opened(name)[1] as stream:
                return hashlib.file_digest(stream, "sha256").digest()

        facts = list(pool.map(fact, order))
        count = Counter(key for *_, key in facts)
        alike = ((name, fact, count[fact[2]] > 1) for name, fact in zip(order, facts, strict=True))
        return judged(((*fact[:2], whole(name) if is_alike else name) for name, fact, is_alike in alike), len(images))


def look_through(entries: Iterator[Entry], total: int) -> Look:
    """A look at the first images of a stream."""
    contents = ((entry, entry.content) for entry in islice(entries, MOST_STREAMED))
    read = ((entry.class_name, content) for entry, content in contents if isinstance(content, bytes))
    return judged(((name, sides_of(BytesIO(held)), hashlib.sha256(held).digest()) for name, held in read), total)


def judged(facts: Iterable[Fact], total: int) -> Look:
    """The look at `total` images, of which some were opened."""
    first: dict[object, str] = {}
    left_out, shared, kept, opened = Counter[str](), set[object](), [], 0
    for class_name, sides, key in facts:
        opened += 1
        if not all(sides) or key in first:
            left_out["copied" if all(sides) else "damaged"] += 1
            shared |= {key} if all(sides) and first[key] != class_name else set()
        else:
            first[key] = class_name
            kept.append(sides)
    unopened = total - opened
    wide = sum(longer > SQUARISH * shorter for shorter, longer in kept)
    lines = {
        f"{wide} of {counted(opened, 'image')} longer than {SQUARISH} to 1, at more cost": wide,
        f"{counted(len(shared), 'picture')} in two classes, counted in the first of them only": shared,
        f"{counted(unopened, 'image')} not opened, so only the run tells if damaged, copied or wide": unopened,
    }
    return Look(left_out, [line for line, count in lines.items() if count], kept)
