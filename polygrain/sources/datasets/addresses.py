"""Where public data sets come from, which files must lie below a data set's root, and the checksums of its archives."""

from typing import NamedTuple


class Archive(NamedTuple):
    """`md5` as published by the owner or the loaders of the field; it is unpacked (or put) in `folder` of the root."""

    url: str
    md5: str
    folder: str = "."


class Source(NamedTuple):
    """`files` must exist below the root; without `archives` the user has to fetch them from `home` by hand.

    `is_listed` where the published lists say what is train and test; only in `cifar10_known` and `cifar100_known` both
    have the same classes.
    """

    home: str
    files: tuple[str, ...]
    archives: tuple[Archive, ...] = ()
    is_listed: bool = False


def inside(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for name in names)


VGG = "https://www.robots.ox.ac.uk/~vgg/data"
CALTECH = "https://data.caltech.edu/records/65de6-vp158"
TORONTO = "https://www.cs.toronto.edu/~kriz"
EUROSAT = "https://huggingface.co/datasets/torchgeo/eurosat/resolve/c877bcd43f099cd0196738f714544e355477f3fd"

CIFAR10 = Source(
    f"{TORONTO}/cifar.html",
    inside("cifar-10-batches-py", *(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"),
    (Archive(f"{TORONTO}/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),),
)
CIFAR100 = Source(
    f"{TORONTO}/cifar.html",
    inside("cifar-100-python", "train", "test", "meta"),
    (Archive(f"{TORONTO}/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),),
)

SOURCES = {
    "aircraft": Source(
        f"{VGG}/fgvc-aircraft",
        inside("fgvc-aircraft-2013b/data", "variants.txt", "images_variant_trainval.txt", "images_variant_test.txt"),
        (Archive(f"{VGG}/fgvc-aircraft/archives/fgvc-aircraft-2013b.tar.gz", "d4acdd33327262359767eeaa97a4f732"),),
    ),
    "cars": Source(
        "Kaggle (the original page is gone): the archives cars_train and cars_test, the devkit, and the labels of the "
        "test images",
        inside("stanford_cars", "devkit/cars_train_annos.mat", "devkit/cars_meta.mat", "cars_test_annos_withlabels.mat")
        + inside("stanford_cars", "cars_train", "cars_test"),
    ),
    "cub": Source(
        CALTECH,
        inside("CUB_200_2011", "images.txt", "image_class_labels.txt", "images"),
        (Archive(f"{CALTECH}/files/CUB_200_2011.tgz", "97eceeb196236b17998738112f37df78"),),
    ),
    "flowers": Source(
        f"{VGG}/flowers/102",
        inside("flowers-102", "imagelabels.mat", "setid.mat", "jpg"),
        (
            Archive(f"{VGG}/flowers/102/102flowers.tgz", "52808999861908f626f3c1f4e79d11fa", "flowers-102"),
            Archive(f"{VGG}/flowers/102/imagelabels.mat", "e0620be6f572b9609742df49c70aed4d", "flowers-102"),
            Archive(f"{VGG}/flowers/102/setid.mat", "a5357ecc9cb78c4bef273ce3793fc85c", "flowers-102"),
        ),
    ),
    "food101": Source(
        "https://data.vision.ee.ethz.ch/cvl/datasets_extra/food-101",
        inside("food-101", "meta/train.json", "meta/test.json", "images"),
        (Archive("https://data.vision.ee.ethz.ch/cvl/food-101.tar.gz", "85eeb15f3717b99a5da872d97d918f87"),),
    ),
    "products": Source(
        "https://cvgl.stanford.edu/projects/lifted_struct",
        inside("Stanford_Online_Products", "Ebay_train.txt", "Ebay_test.txt"),
        (
            Archive(
                "http://ftp.cs.stanford.edu/cs/cvgl/Stanford_Online_Products.zip", "7f73d41a2f44250d4779881525aea32e"
            ),
        ),
        is_listed=True,
    ),
    "inshop": Source(
        "https://mmlab.ie.cuhk.edu.hk/projects/DeepFashion/InShopRetrieval.html (on request; images in Img/img or img)",
        inside("Eval", "list_eval_partition.txt"),
        is_listed=True,
    ),
    "dtd": Source(
        f"{VGG}/dtd",
        inside("dtd/dtd", "labels/train1.txt", "labels/val1.txt", "labels/test1.txt", "images"),
        (Archive(f"{VGG}/dtd/download/dtd-r1.0.1.tar.gz", "fff73e5086ae6bdbea199a49dfb8a4c1", "dtd"),),
    ),
    "eurosat": Source(
        "https://github.com/phelber/eurosat",
        inside("eurosat", "2750"),
        (Archive(f"{EUROSAT}/EuroSAT.zip", "c8fa014336c82ac7804f0398fcb19387", "eurosat"),),
    ),
    "pets": Source(
        f"{VGG}/pets",
        inside("oxford-iiit-pet", "images", "annotations/trainval.txt", "annotations/test.txt"),
        (
            Archive(f"{VGG}/pets/data/images.tar.gz", "5c4f3ee8e5d25df40f4fd59a7f44e54c", "oxford-iiit-pet"),
            Archive(f"{VGG}/pets/data/annotations.tar.gz", "95a8c909bbe2e81eed6a22bccdf3f68f", "oxford-iiit-pet"),
        ),
    ),
    "cifar10": CIFAR10,
    "cifar10_known": CIFAR10._replace(is_listed=True),
    "cifar100": CIFAR100,
    "cifar100_known": CIFAR100._replace(is_listed=True),
    "cifar100_super": CIFAR100._replace(is_listed=True),  # in the classes within each super-class
}
