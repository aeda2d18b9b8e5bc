"""Images with boxes, in the layouts of COCO (annotations/instances_train2017.json, train2017/) and VOC (VOC2007/)."""

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np

PARTS = {"coco": ("train", "val"), "voc": ("trainval", "test")}
Item = tuple[list[float | int], int | str, bool]
"""A box (left, top, right, bottom in px), its class, and whether it counts neither way."""


class Scene(NamedTuple):
    """An image, and its `boxes`, their `labels` from 1, and which are `ignored`."""

    file: Path
    rows: dict[str, np.ndarray]


def read(root: Path, layout: str) -> tuple[list[Scene], list[Scene], int]:
    """The scenes to train on, those to test, and the number of classes; ValueError where they are not laid out so.

    As in the base code a training has no crowds and no empty images, and takes what VOC calls difficult as any other.
    """
    try:
        train, test = ([*{"coco": coco, "voc": voc}[layout](root, part)] for part in PARTS[layout])
    except (OSError, KeyError, TypeError, ValueError, ElementTree.ParseError) as error:
        raise ValueError(f"{root} is not laid out as {layout}: {error!r}") from error
    train = [(file, [(*item[:2], False) for item in items if layout == "voc" or not item[2]]) for file, items in train]
    numbers = {name: i + 1 for i, name in enumerate(sorted({item[1] for _, items in train + test for item in items}))}
    taught = [scene(file, items, numbers) for file, items in train if items]
    tested = [scene(file, items, numbers) for file, items in test]
    if not taught or all(one.rows["ignored"].all() for one in tested):
        raise ValueError(f"{root} has no boxes to train on or to test, in its parts {' and '.join(PARTS[layout])}")
    return taught, tested, len(numbers)


def scene(file: Path, items: list[Item], numbers: dict) -> Scene:
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


def voc(root: Path, part: str) -> Iterator[tuple[Path, list[Item]]]:
    """Every year that lists the part; its first pixel has the number 1."""
    for names in sorted(root.glob(f"VOC*/ImageSets/Main/{part}.txt")):
        for name in names.read_text(encoding="utf-8").split():
            items = []
            for item in ElementTree.parse(names.parents[2] / f"Annotations/{name}.xml").iter("object"):
                box = [float(item.findtext(f"bndbox/{key}")) for key in ("xmin", "ymin", "xmax", "ymax")]
                box = [box[0] - 1, box[1] - 1, *box[2:]]
                items.append((box, item.findtext("name"), item.findtext("difficult") == "1"))
            yield names.parents[2] / f"JPEGImages/{name}.jpg", items
