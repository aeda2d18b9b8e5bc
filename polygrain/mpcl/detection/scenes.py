"""Images with boxes, laid out as COCO: annotations/instances_train2017.json, train2017/; of val2017 the same."""

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

PARTS = ("train", "val")
Item = tuple[list[float | int], int, bool]
"""A box (left, top, right, bottom in px), its class, and whether it counts neither way."""


class Scene(NamedTuple):
    """An image, and its `boxes`, their `labels` from 1, and which are `ignored`."""

    file: Path
    rows: dict[str, np.ndarray]


def read(root: Path) -> tuple[list[Scene], list[Scene], int]:
    """The scenes to train on, those to test, and the number of classes; ValueError where they are not laid out so.

    As in the base code a training has no crowds and no empty images.
    """
    try:
        train, test = ([*coco(root, part)] for part in PARTS)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{root} is not laid out as COCO: {error!r}") from error
    train = [(file, [item for item in items if not item[2]]) for file, items in train]
    numbers = {name: i + 1 for i, name in enumerate(sorted({item[1] for _, items in train + test for item in items}))}
    taught = [scene(file, items, numbers) for file, items in train if items]
    tested = [scene(file, items, numbers) for file, items in test]
    if not taught or all(one.rows["ignored"].all() for one in tested):
        raise ValueError(f"{root} has no boxes to train on or to test, in its parts {' and '.join(PARTS)}")
    return taught, tested, len(numbers)


def scene(file: Path, items: list[Item], numbers: dict[int, int]) -> Scene:
    boxes = np.array([item[0] for item in items], np.float32).reshape(-1, 4)
    labels, ignored = np.array([numbers[item[1]] for item in items], int), np.array([item[2] for item in items], bool)
    return Scene(file, {"boxes": boxes, "labels": labels, "ignored": ignored})


def coco(root: Path, part: str) -> Iterator[tuple[Path, list[Item]]]:
    """One file of annotations; a box is left, top, width, height."""
    (file,) = (root / "annotations").glob(f"instances_{part}*.json")
    content, items = json.loads(file.read_text(encoding="utf-8")), defaultdict(list)
    for item in content["annotations"]:
        left, top, width, height = item["bbox"]
        if min(width, height) > 1:
            row = ([left, top, left + width, top + height], item["category_id"], bool(item["iscrowd"]))
            items[item["image_id"]].append(row)
    for image in content["images"]:
        yield root / file.stem.removeprefix("instances_") / image["file_name"], items[image["id"]]
