"""Small copies of the public data sets, in the folder structures and annotation formats that their owners publish."""

import csv
import hashlib
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from PIL import Image
from scipy.io import savemat
from torchvision.datasets import CIFAR10, CIFAR100, Flowers102

from polygrain.sources.datasets.sets import SETS, SUPER_CLASSES
from polygrain.sources.kind import Ask

# Real class names in their published order; the first half trains.
NAMES = {
    "aircraft": ["707-320", "727-200", "737-200", "737-300"],
    "cars": ["AM General Hummer SUV 2000", "Acura RL Sedan 2012", "Ferrari FF Coupe 2012", "Ram C/V Cargo Van 2012"],
    "cub": ["001.Black_footed_Albatross", "002.Laysan_Albatross", "101.White_Pelican", "102.Western_Wood_Pewee"],
    "flowers": ["pink primrose", "hard-leaved pocket orchid", "canterbury bells", "sweet pea"],
    "food101": ["apple_pie", "baby_back_ribs", "lobster_bisque", "waffles", "zebra"],
    "dtd": ["banded", "blotchy", "braided", "zigzagged"],
    "eurosat": ["AnnualCrop", "Forest", "HerbaceousVegetation", "SeaLake"],
    "pets": ["Abyssinian", "american_bulldog", "Bengal", "beagle"],
}


def paint(file: Path, label: int, number: int, task: str) -> Path:
    """A picture whose class is the place and colour of a bar over noise; every task has its own bar."""
    rng = np.random.default_rng([label, number, *task.encode()])
    image = rng.integers(0, 110, (40, 50, 3), dtype=np.uint8)
    shape, top = 4 + len(task) % 5, 6 * (label % 5)
    image[top : top + shape, 5:45, label % 3] = 190 + rng.integers(0, 60)
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(file, quality=90)
    return file


def write_text(file: Path, lines: list[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{line}\n" for line in lines))


def aircraft(root: Path, each: int) -> None:
    base, lists = root / "fgvc-aircraft-2013b/data", {"trainval": [], "test": []}
    for label, name in enumerate(NAMES["aircraft"]):
        for i in range(each):
            paint(base / f"images/{1000 * label + i:07d}.jpg", label, i, "aircraft")
            lists["test" if i % 3 == 2 else "trainval"].append(f"{1000 * label + i:07d} {name}")
    write_text(base / "variants.txt", NAMES["aircraft"])
    for split, lines in lists.items():
        write_text(base / f"images_variant_{split}.txt", lines)


def annotations(rows: list[tuple[str, int]]) -> np.ndarray:
    fields = [("bbox_x1", object), ("class", object), ("fname", object)]
    return np.array([(np.uint8(1), np.uint8(label + 1), name) for name, label in rows], dtype=fields)[None]


def cars(root: Path, each: int) -> None:
    base, parts = root / "stanford_cars", {"train": [], "test": []}
    for i in range(each):
        for label in range(len(NAMES["cars"])):
            rows = parts["train" if i % 2 else "test"]
            rows.append((f"{len(rows) + 1:05d}.jpg", label))
            folder = "cars_train" if i % 2 else "cars_test"
            paint(base / folder / rows[-1][0], label, i, "cars")
    (base / "devkit").mkdir()
    savemat(base / "devkit/cars_meta.mat", {"class_names": np.array(NAMES["cars"], dtype=object)[None]})
    savemat(base / "devkit/cars_train_annos.mat", {"annotations": annotations(parts["train"])})
    savemat(base / "cars_test_annos_withlabels.mat", {"annotations": annotations(parts["test"])})


def cub(root: Path, each: int) -> None:
    base, images, labels = root / "CUB_200_2011", [], []
    for name in NAMES["cub"]:
        label = int(name[:3])
        for i in range(each):
            paint(base / "images" / name / f"{name[4:]}_{i:04d}.jpg", label, i, "cub")
            images.append(f"{len(images) + 1} {name}/{name[4:]}_{i:04d}.jpg")
            labels.append(f"{len(labels) + 1} {label}")
    write_text(base / "images.txt", images)
    write_text(base / "image_class_labels.txt", labels)


def flowers(root: Path, each: int) -> None:
    base, labels = root / "flowers-102", []
    for name in NAMES["flowers"]:
        for i in range(each):
            labels.append(Flowers102.classes.index(name) + 1)
            paint(base / f"jpg/image_{len(labels):05d}.jpg", labels[-1], i, "flowers")
    numbers = np.arange(1, len(labels) + 1)
    savemat(base / "imagelabels.mat", {"labels": np.array(labels, dtype=np.uint8)[None]})
    savemat(base / "setid.mat", {"trnid": numbers[0::3], "valid": numbers[1::3], "tstid": numbers[2::3]})


def food101(root: Path, each: int) -> None:
    base, parts = root / "food-101", {"train": {}, "test": {}}
    for label, name in enumerate(NAMES["food101"]):
        for i in range(each):
            paint(base / f"images/{name}/{1000 + i}.jpg", label, i, "food101")
            parts["test" if i % 4 == 3 else "train"].setdefault(name, []).append(f"{name}/{1000 + i}")
    for split, listed in parts.items():
        write_text(base / f"meta/{split}.json", [json.dumps(listed)])


def products(root: Path, each: int) -> None:
    base, number = root / "Stanford_Online_Products", 0
    for split, classes in (("train", range(1, 6)), ("test", range(6, 10))):
        lines = ["image_id class_id super_class_id path"]
        for label in classes:
            for i in range(each):
                number += 1
                paint(base / f"bicycle_final/{label:012d}_{i}.JPG", label, i, "products")
                lines.append(f"{number} {label} 1 bicycle_final/{label:012d}_{i}.JPG")
        write_text(base / f"Ebay_{split}.txt", lines)


def dtd(root: Path, each: int) -> None:
    base, parts = root / "dtd/dtd", {"train": [], "val": [], "test": []}
    for label, name in enumerate(NAMES["dtd"]):
        for i in range(each):
            paint(base / f"images/{name}/{name}_{i:04d}.jpg", label, i, "dtd")
            parts[list(parts)[i % 3]].append(f"{name}/{name}_{i:04d}.jpg")
    for split, lines in parts.items():
        write_text(base / f"labels/{split}1.txt", lines)


def eurosat(root: Path, each: int) -> None:
    for label, name in enumerate(NAMES["eurosat"]):
        for i in range(each):
            paint(root / f"eurosat/2750/{name}/{name}_{i + 1}.jpg", label, i, "eurosat")


def pets(root: Path, each: int) -> None:
    base, parts = root / "oxford-iiit-pet", {"trainval": [], "test": []}
    for label, name in enumerate(NAMES["pets"]):
        for i in range(each):
            paint(base / f"images/{name}_{i + 1}.jpg", label, i, "pets")
            parts["test" if i % 2 else "trainval"].append(f"{name}_{i + 1} {label + 1} 1 1")
    for split, lines in parts.items():
        write_text(base / f"annotations/{split}.txt", lines)


def inshop(root: Path, each: int) -> None:
    rows = []
    for item in range(1, 6):
        for i in range(each):
            path = f"img/WOMEN/Dresses/id_{item:08d}/{i + 1:02d}_1_front.jpg"
            paint(root / "Img" / path, item, i, "inshop")
            split = "train" if item < 4 else ("query", "gallery")[i % 2]
            rows.append(f"{path}    id_{item:08d} {split}")
    write_text(root / "Eval/list_eval_partition.txt", [str(len(rows)), "image_name item_id evaluation_status", *rows])


def cifar(root: Path, each: int, version: str) -> Callable:
    """The Python batches; the function that is returned puts their checksums in place of the published."""
    base = root / {"10": "cifar-10-batches-py", "100": "cifar-100-python"}[version]
    key = "labels" if version == "10" else "fine_labels"
    files = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"] if version == "10" else ["train", "test"]
    base.mkdir(parents=True)
    rng, written = np.random.default_rng(0), {}
    for name in files:
        labels = list(range(int(version))) * each
        batch = {"data": rng.integers(0, 256, (len(labels), 3072), dtype=np.uint8), key: labels}
        written[name] = pickle.dumps(batch)
    names = [f"class {i}" for i in range(10)]
    if version == "100":  # super-classes need the published ones
        with SUPER_CLASSES.open(encoding="utf-8") as lines:
            names = sorted(name for row in csv.DictReader(lines) for name in row["classes"].split())
    written |= {"batches.meta": pickle.dumps({"label_names": names})} if version == "10" else {}
    written |= {"meta": pickle.dumps({"fine_label_names": names})} if version == "100" else {}
    for name, content in written.items():
        (base / name).write_bytes(content)

    def publish(monkeypatch) -> None:
        kind = {"10": CIFAR10, "100": CIFAR100}[version]
        sums = {name: hashlib.md5(content).hexdigest() for name, content in written.items()}
        for attribute in ("train_list", "test_list"):
            monkeypatch.setattr(kind, attribute, [[name, sums[name]] for name, _ in getattr(kind, attribute)])
        monkeypatch.setattr(kind, "meta", kind.meta | {"md5": sums[kind.meta["filename"]]})

    return publish


def ask(side: int) -> Ask:
    """What `images` asks of folders, where counts may differ."""
    params = SimpleNamespace(side=side, shape="crop", listed_shares=[], published_counts=False)
    return Ask(params, False, "*", lambda raw: raw)


# Of each data set of files, by its name.
WRITERS: dict[str, Callable[[Path, int], None]] = {name: globals()[name] for name in SETS if name in globals()}
