"""Each public data set: a function that reads its published files, decorated with its address, checksums and counts.

torchvision and pytorch-metric-learning read most of them (imported when called: both are slow to load). Each function
takes the folder that holds the published one, and its files must be there. The counts are those of the label files.
"""

import csv
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

SUPER_CLASSES = Path(__file__).with_name("super_classes.csv")
VGG = "https://www.robots.ox.ac.uk/~vgg/data"
CALTECH = "https://data.caltech.edu/records/65de6-vp158"
TORONTO = "https://www.cs.toronto.edu/~kriz"
EUROSAT = "https://huggingface.co/datasets/torchgeo/eurosat/resolve/c877bcd43f099cd0196738f714544e355477f3fd"


class Records(NamedTuple):
    """An entry per image: its file (a name only, if `pixels` holds it), index into `class_names`, published split."""

    paths: list[Path]
    labels: list[int]
    class_names: list[str]
    splits: list[str] | None = None
    pixels: "np.ndarray | None" = None


class Archive(NamedTuple):
    """`md5` as published by the owner or the loaders of the field; it is unpacked (or put) in `folder` of the root."""

    url: str
    md5: str
    folder: str = "."


class Counts(NamedTuple):
    """Classes and images of each half, none that trains in a set of one part; `printed` in a paper where it differs."""

    train_classes: int
    train_images: int
    test_classes: int
    test_images: int
    printed: Mapping[str, int] = {}


class PublicSet(NamedTuple):
    """`files` must exist below the root; without `archives` the user has to fetch them from `home` by hand.

    `is_listed` where the published lists say what is train and test; only in `cifar10_known` and `cifar100_known` both
    have the same classes.
    """

    counts: Counts
    home: str
    files: tuple[str, ...]
    archives: tuple[Archive, ...] = ()
    is_listed: bool = False
    read: Callable[[Path], Records] = NotImplemented

    def __call__(self, read: Callable[[Path], Records]) -> Callable[[Path], Records]:
        """Declares the set under the name of its function."""
        SETS[read.__name__] = self._replace(read=read)
        return read


SETS: dict[str, PublicSet] = {}


def inside(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for name in names)


def by_order(
    paths: list[Path], keys: list[Any], splits: list[str] | None = None, names: dict[Any, Any] | None = None
) -> Records:
    """Records whose classes are the sorted distinct keys; `names` may call them something else."""
    classes = sorted(set(keys))
    number = {key: i for i, key in enumerate(classes)}
    return Records(paths, [number[key] for key in keys], [str((names or {}).get(key, key)) for key in classes], splits)


def together(kind: Any, root: Path, *splits: str, files: str = "_image_files") -> tuple[list[Path], list[str]]:
    """The files and class names of all images in some lists, by a class of torchvision."""
    parts = [kind(root, split) for split in splits]
    paths = [Path(path) for part in parts for path in getattr(part, files)]
    return paths, [part.classes[label] for part in parts for label in part._labels]


@PublicSet(
    Counts(50, 5000, 50, 5000),  # Grappa, Table 1
    f"{VGG}/fgvc-aircraft",
    inside("fgvc-aircraft-2013b/data", "variants.txt", "images_variant_trainval.txt", "images_variant_test.txt"),
    (Archive(f"{VGG}/fgvc-aircraft/archives/fgvc-aircraft-2013b.tar.gz", "d4acdd33327262359767eeaa97a4f732"),),
)
def aircraft(root: Path) -> Records:
    """FGVC-Aircraft, 100 variants in alphabetical order whatever that of their list; all of its lists together."""
    from torchvision.datasets import FGVCAircraft

    return by_order(*together(FGVCAircraft, root, "trainval", "test"))


@PublicSet(
    Counts(98, 8054, 98, 8131),  # Grappa, Table 1
    "Kaggle (the original page is gone): the archives cars_train and cars_test, the devkit, and the labels of the "
    "test images",
    inside("stanford_cars", "devkit/cars_train_annos.mat", "devkit/cars_meta.mat", "cars_test_annos_withlabels.mat")
    + inside("stanford_cars", "cars_train", "cars_test"),
)
def cars(root: Path) -> Records:
    """Stanford Cars (Cars-196): both archives together, as its class split wants."""
    from torchvision.datasets import StanfordCars

    parts = [StanfordCars(root, split) for split in ("train", "test")]
    samples = [sample for part in parts for sample in part._samples]
    return Records([Path(path) for path, _ in samples], [int(label) for _, label in samples], parts[0].classes)


@PublicSet(
    Counts(100, 5864, 100, 5924),  # Grappa, Table 1
    CALTECH,
    inside("CUB_200_2011", "images.txt", "image_class_labels.txt", "images"),
    (Archive(f"{CALTECH}/files/CUB_200_2011.tgz", "97eceeb196236b17998738112f37df78"),),
)
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


@PublicSet(
    Counts(51, 3919, 51, 4270, {"train_images": 3870, "test_images": 4319}),  # Grappa, Table 1
    f"{VGG}/flowers/102",
    inside("flowers-102", "imagelabels.mat", "setid.mat", "jpg"),
    (
        Archive(f"{VGG}/flowers/102/102flowers.tgz", "52808999861908f626f3c1f4e79d11fa", "flowers-102"),
        Archive(f"{VGG}/flowers/102/imagelabels.mat", "e0620be6f572b9609742df49c70aed4d", "flowers-102"),
        Archive(f"{VGG}/flowers/102/setid.mat", "a5357ecc9cb78c4bef273ce3793fc85c", "flowers-102"),
    ),
)
def flowers(root: Path) -> Records:
    """Oxford Flowers-102, its three lists together; classes by name, since their numbers follow no order."""
    from torchvision.datasets import Flowers102

    class Unhashed(Flowers102):
        # Their counts are compared with the published ones instead.
        _file_dict = {key: (file, None) for key, (file, _) in Flowers102._file_dict.items()}  # noqa: RUF012

    return by_order(*together(Unhashed, root, "train", "val", "test"))


@PublicSet(
    Counts(51, 51000, 50, 50000),  # Grappa, Table 1
    "https://data.vision.ee.ethz.ch/cvl/datasets_extra/food-101",
    inside("food-101", "meta/train.json", "meta/test.json", "images"),
    (Archive("https://data.vision.ee.ethz.ch/cvl/food-101.tar.gz", "85eeb15f3717b99a5da872d97d918f87"),),
)
def food101(root: Path) -> Records:
    from torchvision.datasets import Food101

    return by_order(*together(Food101, root, "train", "test"))


@PublicSet(
    Counts(11318, 59551, 11316, 60502),  # Grappa, Table 1
    "https://cvgl.stanford.edu/projects/lifted_struct",
    inside("Stanford_Online_Products", "Ebay_train.txt", "Ebay_test.txt"),
    (Archive("http://ftp.cs.stanford.edu/cs/cvgl/Stanford_Online_Products.zip", "7f73d41a2f44250d4779881525aea32e"),),
    is_listed=True,
)
def products(root: Path) -> Records:
    """Stanford Online Products, with its own class-disjoint lists."""
    from pytorch_metric_learning.datasets import StanfordOnlineProducts

    parts = {split: StanfordOnlineProducts(root, split) for split in ("train", "test")}
    splits = [split for split, part in parts.items() for _ in part.paths]
    paths = [Path(path) for part in parts.values() for path in part.paths]
    return by_order(paths, [label for part in parts.values() for label in part.labels], splits)


@PublicSet(
    Counts(3997, 25882, 3985, 26830),  # its evaluation list
    "https://mmlab.ie.cuhk.edu.hk/projects/DeepFashion/InShopRetrieval.html (on request; images in Img/img or img)",
    inside("Eval", "list_eval_partition.txt"),
    is_listed=True,
)
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


@PublicSet(
    Counts(0, 0, 47, 5640),  # its label files
    f"{VGG}/dtd",
    inside("dtd/dtd", "labels/train1.txt", "labels/val1.txt", "labels/test1.txt", "images"),
    (Archive(f"{VGG}/dtd/download/dtd-r1.0.1.tar.gz", "fff73e5086ae6bdbea199a49dfb8a4c1", "dtd"),),
)
def dtd(root: Path) -> Records:
    """Describable Textures, the three lists of its first partition together, which are all images."""
    from torchvision.datasets import DTD

    return by_order(*together(DTD, root, "train", "val", "test"))


@PublicSet(
    Counts(0, 0, 10, 27000),  # its folders
    "https://github.com/phelber/eurosat",
    inside("eurosat", "2750"),
    (Archive(f"{EUROSAT}/EuroSAT.zip", "c8fa014336c82ac7804f0398fcb19387", "eurosat"),),
)
def eurosat(root: Path) -> Records:
    """EuroSAT in RGB."""
    from torchvision.datasets import EuroSAT

    read = EuroSAT(root)
    return Records([Path(path) for path, _ in read.samples], list(read.targets), read.classes)


@PublicSet(
    Counts(0, 0, 37, 7349),  # its label files
    f"{VGG}/pets",
    inside("oxford-iiit-pet", "images", "annotations/trainval.txt", "annotations/test.txt"),
    (
        Archive(f"{VGG}/pets/data/images.tar.gz", "5c4f3ee8e5d25df40f4fd59a7f44e54c", "oxford-iiit-pet"),
        Archive(f"{VGG}/pets/data/annotations.tar.gz", "95a8c909bbe2e81eed6a22bccdf3f68f", "oxford-iiit-pet"),
    ),
)
def pets(root: Path) -> Records:
    """Oxford-IIIT Pets, both lists together."""
    from torchvision.datasets import OxfordIIITPet

    return by_order(*together(OxfordIIITPet, root, "trainval", "test", files="_images"))


def cifar(root: Path, version: str) -> Records:
    """CIFAR-10 or -100 as arrays; torchvision compares the checksum of each batch file before it reads it."""
    import numpy as np
    from torchvision.datasets import CIFAR10, CIFAR100

    kind = {"10": CIFAR10, "100": CIFAR100}[version]
    parts = {"train": kind(root, train=True), "test": kind(root, train=False)}
    names = [Path(f"{split}/{i:05d}") for split, part in parts.items() for i in range(len(part.data))]
    splits = [split for split, part in parts.items() for _ in part.data]
    labels = [int(label) for part in parts.values() for label in part.targets]
    return Records(names, labels, parts["train"].classes, splits, np.concatenate([p.data for p in parts.values()]))


def cifar100_super(root: Path) -> Records:
    """CIFAR-100 by its 20 super-classes: in alphabetical order three classes of each train, two are tested, of both
    published batches. This is the split of the Cifar Collage (GSP, 5.1), as its public code has it.
    """
    read = cifar(root, "100")
    lines = csv.DictReader(SUPER_CLASSES.read_text(encoding="utf-8").splitlines())
    classes = {line["super_class"]: sorted(line["classes"].split()) for line in lines}
    place = {name: (above, "train" if i < 3 else "test") for above in classes for i, name in enumerate(classes[above])}
    places = [place[read.class_names[label]] for label in read.labels]
    records = by_order(read.paths, [above for above, _ in places], [split for _, split in places])
    return records._replace(pixels=read.pixels)


CIFAR10 = PublicSet(
    Counts(0, 0, 10, 60000),  # its batches
    f"{TORONTO}/cifar.html",
    inside("cifar-10-batches-py", *(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"),
    (Archive(f"{TORONTO}/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),),
    read=partial(cifar, version="10"),
)
CIFAR100 = PublicSet(
    Counts(0, 0, 100, 60000),
    f"{TORONTO}/cifar.html",
    inside("cifar-100-python", "train", "test", "meta"),
    (Archive(f"{TORONTO}/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),),
    read=partial(cifar, version="100"),
)
SETS |= {
    "cifar10": CIFAR10,
    "cifar10_known": CIFAR10._replace(counts=Counts(10, 50000, 10, 10000), is_listed=True),
    "cifar100": CIFAR100,
    "cifar100_known": CIFAR100._replace(counts=Counts(100, 50000, 100, 10000), is_listed=True),
    # In the classes within each super-class, halves as in GSP's code.
    "cifar100_super": CIFAR100._replace(counts=Counts(20, 36000, 20, 24000), is_listed=True, read=cifar100_super),
}
