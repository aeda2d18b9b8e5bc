"""Image paths, class numbers and class names of each public data set, from its own files.

torchvision and pytorch-metric-learning read most of them (imported when called: both are slow to load). Each reader
takes the folder that holds the published one; the files of its `Source` must be there.
"""

import csv
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SUPER_CLASSES = Path(__file__).with_name("super_classes.csv")


class Records(NamedTuple):
    """An entry per image: its file, its class as an index into `class_names`, and its published split, if any.

    For images in arrays (CIFAR), `pixels` holds them and the paths are names only.
    """

    paths: list[Path]
    labels: list[int]
    class_names: list[str]
    splits: list[str] | None = None
    pixels: np.ndarray | None = None


def by_order(
    paths: list[Path], keys: list[Any], splits: list[str] | None = None, names: dict[Any, Any] | None = None
) -> Records:
    """Records whose classes are the sorted distinct keys; `names` may call them something else."""
    classes = sorted(set(keys))
    number = {key: i for i, key in enumerate(classes)}
    return Records(paths, [number[key] for key in keys], [str((names or {}).get(key, key)) for key in classes], splits)


def aircraft(root: Path) -> Records:
    """FGVC-Aircraft, 100 variants in alphabetical order; training, validation and test list together."""
    from torchvision.datasets import FGVCAircraft

    parts = [FGVCAircraft(root, split) for split in ("trainval", "test")]
    paths = [Path(path) for part in parts for path in part._image_files]
    # The published list of variants is sorted, too; a copy whose list is not must still split its classes alike.
    listed, classes = parts[0].classes, sorted(parts[0].classes)
    return Records(paths, [classes.index(listed[label]) for part in parts for label in part._labels], classes)


def cars(root: Path) -> Records:
    """Stanford Cars (Cars-196): both archives together, as its class split wants."""
    from torchvision.datasets import StanfordCars

    parts = [StanfordCars(root, split) for split in ("train", "test")]
    samples = [sample for part in parts for sample in part._samples]
    return Records([Path(path) for path, _ in samples], [int(label) for _, label in samples], parts[0].classes)


def cub(root: Path) -> Records:
    """CUB-200-2011."""
    from pytorch_metric_learning.datasets import CUB

    read = CUB(root)
    listed = (root / "CUB_200_2011/images.txt").read_text().split("\n")
    if len(read.paths) != sum(bool(line.strip()) for line in listed):
        raise ValueError("image_class_labels.txt and images.txt do not list the same images")
    paths = [Path(path) for path in read.paths]
    names = {label: path.parent.name for label, path in zip(read.labels, paths, strict=True)}
    return by_order(paths, read.labels, None, names)


def flowers(root: Path) -> Records:
    """Oxford Flowers-102, its three lists together; classes by name, since their numbers follow no order."""
    from torchvision.datasets import Flowers102

    class Unhashed(Flowers102):
        # Their counts are compared with the published ones instead.
        _file_dict = {key: (file, None) for key, (file, _) in Flowers102._file_dict.items()}  # noqa: RUF012

    parts = [Unhashed(root, split) for split in ("train", "val", "test")]
    paths = [Path(path) for part in parts for path in part._image_files]
    return by_order(paths, [Flowers102.classes[label] for part in parts for label in part._labels])


def food101(root: Path) -> Records:
    from torchvision.datasets import Food101

    parts = [Food101(root, split) for split in ("train", "test")]
    paths = [Path(path) for part in parts for path in part._image_files]
    return by_order(paths, [part.classes[label] for part in parts for label in part._labels])


def products(root: Path) -> Records:
    """Stanford Online Products, with its own class-disjoint lists."""
    from pytorch_metric_learning.datasets import StanfordOnlineProducts

    parts = {split: StanfordOnlineProducts(root, split) for split in ("train", "test")}
    splits = [split for split, part in parts.items() for _ in part.paths]
    paths = [Path(path) for part in parts.values() for path in part.paths]
    return by_order(paths, [label for part in parts.values() for label in part.labels], splits)


def dtd(root: Path) -> Records:
    """Describable Textures, the three lists of its first partition together, which are all images."""
    from torchvision.datasets import DTD

    parts = [DTD(root, split) for split in ("train", "val", "test")]
    paths = [Path(path) for part in parts for path in part._image_files]
    return by_order(paths, [part.classes[label] for part in parts for label in part._labels])


def eurosat(root: Path) -> Records:
    """EuroSAT in RGB."""
    from torchvision.datasets import EuroSAT

    read = EuroSAT(root)
    return Records([Path(path) for path, _ in read.samples], list(read.targets), read.classes)


def pets(root: Path) -> Records:
    """Oxford-IIIT Pets, both lists together."""
    from torchvision.datasets import OxfordIIITPet

    parts = [OxfordIIITPet(root, split) for split in ("trainval", "test")]
    paths = [Path(path) for part in parts for path in part._images]
    return by_order(paths, [part.classes[label] for part in parts for label in part._labels])


def inshop(root: Path) -> Records:
    """DeepFashion In-shop: its list gives each image's item, and the split: train, query or gallery."""
    lines = (root / "Eval/list_eval_partition.txt").read_text().splitlines()
    rows = [line.split() for line in lines[2:] if line.strip()]
    if len(rows) != int(lines[0]):
        raise ValueError(f"list_eval_partition.txt announces {lines[0].strip()} images and lists {len(rows)}")
    if unknown := {split for _, _, split in rows} - {"train", "query", "gallery"}:
        raise ValueError(f"list_eval_partition.txt has the splits {sorted(unknown)}; known: train, query, gallery")
    below = root / "Img" if (root / "Img").is_dir() else root
    return by_order([below / path for path, _, _ in rows], [item for _, item, _ in rows], [split for *_, split in rows])


def cifar(root: Path, version: str) -> Records:
    """CIFAR-10 or -100 as arrays; torchvision compares the checksum of each batch file before it reads it."""
    from torchvision.datasets import CIFAR10, CIFAR100

    kind = {"10": CIFAR10, "100": CIFAR100}[version]
    parts = {"train": kind(root, train=True), "test": kind(root, train=False)}
    names = [Path(f"{split}/{i:05d}") for split, part in parts.items() for i in range(len(part.data))]
    splits = [split for split, part in parts.items() for _ in part.data]
    labels = [int(label) for part in parts.values() for label in part.targets]
    return Records(names, labels, parts["train"].classes, splits, np.concatenate([p.data for p in parts.values()]))


def cifar100_super(root: Path) -> Records:
    """CIFAR-100 by its 20 super-classes: three classes of each train, two are tested, in alphabetical order.

    This is the split of the Cifar Collage (GSP, 5.1), as its public code has it. Both published batches count.
    """
    read = cifar(root, "100")
    with SUPER_CLASSES.open(newline="", encoding="utf-8") as lines:
        classes = {row["super_class"]: sorted(row["classes"].split()) for row in csv.DictReader(lines)}
    place = {name: (above, "train" if i < 3 else "test") for above in classes for i, name in enumerate(classes[above])}
    places = [place[read.class_names[label]] for label in read.labels]
    records = by_order(read.paths, [above for above, _ in places], [split for _, split in places])
    return records._replace(pixels=read.pixels)
