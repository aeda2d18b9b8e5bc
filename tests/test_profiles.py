"""Every profile that ships is one the stages accept, and says what it said when it held all its values itself.

`profiles_before.json` has a digest of each section of each profile as it was then: {section: {digest: profiles}}.
What has changed since is in DIFFERENCES, one line each with its reason; nothing else may differ. (The section
`gsp_folds` was called `gsp_fold` then.)
"""

import copy
import functools
import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ruamel.yaml import YAML

from polygrain.config import compose
from polygrain.runner.command import check
from tests.helpers.project import ROOT, copy_profile

PROFILES = sorted(file.parent.name for file in (ROOT / "profiles").glob("*/values.yaml"))
# They never held all their values themselves.
YOUNGER = {name for name in PROFILES if name.startswith("tll-obj")} | {
    "gsp-cub-poolings",
    "gsp-cub-libc",
    "gsp-cars-libc",
    "gsp-inshop-libc",
    "gsp-products-libc",
    "gsp-imagenet",
    "gsp-cifar-distilled",
    "gsp-inshop-tuning",
    "gsp-products-tuning",
}
BEFORE = json.loads((ROOT / "tests/profiles_before.json").read_text())
MOST_LINES = 900


class Difference(NamedTuple):
    profiles: str
    """Names, or the beginning of names with a * behind it."""
    key: str
    before: Any
    now: Any
    why: str

    def is_of(self, profile: str) -> bool:
        names = self.profiles.split()
        return any(profile == name or (name[-1] == "*" and profile.startswith(name[:-1])) for name in names)


ABSENT = object()  # the profile had no such key
AS_ROOT = object()  # it has the root's now
ANY = object()  # a new key that is made of others, so it differs between profiles as they do
MPCL = "imagenet* vit48"
STROKES = {
    "smallest_crop": 0.5,
    "turn": 10,
    "flip": 0,
    "stroke": 1.5,
    "jitter": 0.4,
    "tint": 0.2,
    "grey": 0.2,
    "blur": 0,
}
PLAIN = STROKES | {"smallest_crop": 0.4, "stroke": 0}
OLD_CROP = STROKES | {"turn": 15, "jitter": 0.3, "grey": 0.1, "blur": 0.3}
FINE_CROP = OLD_CROP | {"turn": 30, "jitter": 0.1, "tint": 0, "grey": 0}
TINY_VIT = {
    "architecture": "vit_tiny_patch16_224",
    "kwargs": {"img_size": 48, "depth": 4, "embed_dim": 96, "num_heads": 3},
    "side": 48,
}
TINY_CONVNEXT = {"architecture": "test_convnext", "kwargs": {}, "side": 48}
WITNESS = "off here, and as in the root, whose run now learns more than its start in minutes"
DRIFT = "the root's value was chosen anew; the profile, which is not for this branch, kept the old one"
OFF = "a branch that is off needs no values of its own, and has the root's"
NEW = "a value that did not exist; the root's does what was done without it"
CHOICE = "new: one model is distilled and chosen without labels, in every profile as in the root"
HALF = "not about this branch: its main path clusters half-whitened features, as the root's"
FINER = "the root's three finest of 32 to 512, which the criterion ranks highest; off here"


def adaptors(*ks: int) -> dict[str, str]:
    return {f"k{k}": f"adaptor/k{k}" for k in ks}


LARGE = "gsp-cars* gsp-cub* gsp-inshop* gsp-products*"
SQUARES = "no run uses the encoder; it has to fit the stored squares all the same, which is checked now"
FAIR = "gsp-cars gsp-cub gsp-inshop gsp-products"
CONVENTIONAL = "gsp-cars-conventional gsp-cub-conventional gsp-inshop-conventional gsp-products-conventional"
TUNING, COLLAGE, CIFAR10 = "gsp-cub-tuning", "gsp-cifar-collage", "gsp-cifar10"
CLAIM = "new: the printed numbers that a page answers for"
RATE = "new: a learning rate for each loss"
SCORE = "new: the conventional protocol stops by P@1, the others by MAP@R as before"
OF_CODE = (
    "the Cifar Collage as GSP's code has it: super-classes, split by their classes; no augmentation; pixels less .5"
)
WHOLE = "crops are of the whole image, as printed: it is stored as a square, and seen in proportion"
PHOTOGRAPHS = "imagenet100 imagenet100-barlow imagenet100-vit"
PUBLISHED_CROP = "crops from 3/4 to 4/3 and, of the probe, from 8 % of the area, as in the public code"
TWICE = "it stood there twice, under two names"
TUNED = {"images": "images/cub", "loss": "c2", "pooling": "gsp", "zero_shot": 0.1}
BACKGROUNDS = [
    "bridge",
    "castle",
    "house",
    "road",
    "skyscraper",
    "cloud",
    "forest",
    "mountain",
    "plain",
    "sea",
    "maple_tree",
    "oak_tree",
    "palm_tree",
    "pine_tree",
    "willow_tree",
    "orchid",
    "poppy",
    "rose",
    "sunflower",
    "tulip",
]
SUPER_BACKGROUNDS = ["flowers", "large_man-made_outdoor_things", "large_natural_outdoor_scenes", "trees"]
FLIPPED = dict.fromkeys(["turn", "stroke", "jitter", "tint", "grey", "blur"], 0) | {"smallest_crop": 1, "flip": 0.5}
CLAIMS = {
    FAIR: {"tables": [1, 2], "network": "bn_inception"},
    CONVENTIONAL: {"tables": [3, 4], "network": "resnet50"},
    TUNING: {"tables": [7], "network": "bn_inception"},
    COLLAGE: {"tables": [6], "network": "resnet20"},
    CIFAR10: None,
}
LOSSES = {
    FAIR: "c1 xbm c2 triplet multi_similarity proxy_nca_pp",
    "gsp-cars gsp-cub gsp-inshop": "proxy_anchor",
    CONVENTIONAL: "xbm",
    f"{TUNING} {COLLAGE}": "c2 proxy_nca_pp",
    CIFAR10: "proxy_nca_pp",
}

DIFFERENCES = [
    *(
        Difference(f"gsp-* mrt {MPCL}", f"encoder.{n}", ABSENT, AS_ROOT, NEW)
        for n in ["kwargs", "mean", "std", "interpolation"]
    ),
    Difference(f"{LARGE} mrt {MPCL}", "encoder.crop", ABSENT, AS_ROOT, NEW),
    Difference("gsp-cifar*", "encoder.crop", ABSENT, 32, SQUARES),
    Difference("gsp-cifar*", "encoder.resize", 48, 32, SQUARES),
    Difference(LARGE, "encoder.resize", 48, 342, SQUARES),
    Difference(LARGE, "images.side", 256, 342, WHOLE),
    Difference(LARGE, "images.shape", ABSENT, "squash", WHOLE),
    Difference(LARGE, "gsp_folds.resize", ABSENT, 256, WHOLE),
    Difference(
        "gsp-cifar10 gsp-cifar-collage", "gsp_folds.resize", ABSENT, 256, "new: of gsp-cub; square images need none"
    ),
    Difference(f"gsp-cifar* mrt {MPCL}", "images.shape", ABSENT, AS_ROOT, NEW),
    Difference(f"gsp-* mrt {MPCL}", "report.judgements", ABSENT, AS_ROOT, "new: a page to compare results blindly"),
    Difference(
        f"gsp-* mrt {MPCL}", "evaluation.random_draws", ABSENT, AS_ROOT, "new: what chance gains, beside a fusion"
    ),
    Difference(f"gsp-* {MPCL}", "seeds.whitening", ABSENT, AS_ROOT, HALF),
    Difference(f"gsp-* mrt {MPCL}", "seeds.sample", ABSENT, AS_ROOT, NEW),
    *(Difference(f"gsp-* mrt {MPCL}", f"knn_graph.{n}", ABSENT, AS_ROOT, NEW) for n in ["index", "recall"]),
    Difference("mrt", "seeds.whitening", ABSENT, "none", "the paper clusters the features as they are"),
    Difference(f"gsp-* mrt {MPCL}", "seeds.whitened_dim", ABSENT, AS_ROOT, HALF),
    Difference(f"gsp-* {MPCL}", "features.unit_length", ABSENT, AS_ROOT, NEW),
    Difference(f"gsp-* {MPCL}", "baseline.up_std", ABSENT, AS_ROOT, "new, and off but where random sets are listed"),
    Difference("mrt", "baseline.up_std", ABSENT, AS_ROOT, "from zero, the loss's scale would set their size for good"),
    Difference("mrt", "features.unit_length", ABSENT, False, "the paper clusters z itself"),
    Difference("mrt", "pseudo_labels.exchanges", 3, 0, "the paper has plain k-means"),
    Difference(f"gsp-* mrt {MPCL}", "distillations", ABSENT, AS_ROOT, CHOICE),
    Difference(f"gsp-* {MPCL}", "distillation", ABSENT, AS_ROOT, CHOICE),
    Difference("mrt", "distillation", ABSENT, ANY, "as the root's, but no target is mixed with its neighbours'"),
    Difference("gsp-*", "choice", ABSENT, AS_ROOT, CHOICE),
    Difference(f"gsp-* mrt {MPCL}", "resolution", ABSENT, AS_ROOT, "new: the encoder's own side, as before"),
    Difference(f"mrt {MPCL}", "choice", ABSENT, ANY, "the same, but two of its views are drawn as the adaptors' are"),
    Difference(f"gsp-* mrt {MPCL}", "baseline.linear", ABSENT, AS_ROOT, "new: a baseline, off but where it is listed"),
    *(
        Difference(f"gsp-* mrt {MPCL}", f"models.{n}", ABSENT, AS_ROOT, CHOICE)
        for n in ["distilled_encoder", "distilled_average", "chosen"]
    ),
    Difference(f"gsp-* {MPCL}", "models.untrained", ABSENT, AS_ROOT, CHOICE),
    Difference("gsp-*", "granularities", adaptors(64, 128, 256), adaptors(128, 256, 512), FINER),
    Difference("gsp-*", "models.k64", "adaptor/k64", ABSENT, FINER),
    Difference("gsp-*", "models.k512", ABSENT, AS_ROOT, FINER),
    Difference("gsp-*", "adaptor.augmentation", OLD_CROP, FINE_CROP, DRIFT),
    Difference("mrt", "mpcl_encoder.views", [STROKES, STROKES], [PLAIN, PLAIN], DRIFT),
    Difference("mrt", "mpcl_probe.view", STROKES, PLAIN, DRIFT),
    *(
        Difference("mrt", f"mpcl_encoder.{key}", before, now, WITNESS)
        for key, before, now in (
            ("network", TINY_VIT, TINY_CONVNEXT),
            ("epochs", 10, 5),
            ("batch", 64, 32),
            ("moco_v3.optimizer.learning_rate", 0.008, 0.006),
        )
    ),
    Difference(f"mrt {MPCL}", "tll_pairs.shape", ABSENT, AS_ROOT, NEW),
    Difference(MPCL, "tll_pairs.max_megapixels", 89, 50, "meant for `images`; the pairs are off"),
    *(
        Difference(f"mrt {MPCL}", f"gsp_{n}", ABSENT, AS_ROOT, OFF)
        for n in ["collage", "folds", "ensemble", "report", "study"]
    ),
    *(Difference(names, "gsp_report.published", ABSENT, claim, CLAIM) for names, claim in CLAIMS.items()),
    *(
        Difference(names, f"gsp_folds.losses.{loss}.rate", ABSENT, 1, RATE)
        for names, losses in LOSSES.items()
        for loss in losses.split()
    ),
    Difference("gsp-products", "gsp_folds.losses.proxy_anchor.rate", ABSENT, 0.5, f"{RATE}; this is printed"),
    Difference(f"{FAIR} {TUNING} {COLLAGE} {CIFAR10}", "gsp_folds.protocol.chosen_by", ABSENT, "map_at_r", SCORE),
    Difference(CONVENTIONAL, "gsp_folds.protocol.chosen_by", ABSENT, "recall_at_1", SCORE),
    Difference(CONVENTIONAL, "gsp_folds.side", 224, 227, "as printed"),
    Difference("gsp-*", "gsp_folds.optimizer", ABSENT, AS_ROOT, NEW),
    *(
        Difference(f"gsp-* mrt {MPCL}", n, ABSENT, AS_ROOT, "new: Table 5's classifiers, off but in gsp-imagenet")
        for n in ["gsp_classifiers", "gsp_classifier"]
    ),
    Difference("gsp-*", "gsp_folds.crop_ratio", ABSENT, 1.3333, "new: crops from 3/4 to 4/3, as printed"),
    Difference(
        f"{FAIR} {CONVENTIONAL} {TUNING}",
        "gsp_folds.backbone.architecture",
        "resnet50",
        "resnet50.tv_in1k",
        "named with its weights",
    ),
    Difference(f"{CIFAR10} {COLLAGE}", "gsp_folds.backbone.architecture", "resnet10t", "resnet20", "the paper's"),
    Difference(CIFAR10, "gsp_folds.poolings.gsp.epsilon", 5.0, 0.5, "the paper's for proxy losses"),
    Difference(CIFAR10, "gsp_runs.pnca-gsp-zs.zero_shot", 0.5, 0.1, "the paper's"),
    *(
        Difference(TUNING, f"gsp_runs.c2-{name}", TUNED | {"values": values}, ABSENT, TWICE)
        for name, values in {
            "mu30": {"mu": 0.3},
            "grid-m16-eps0_5": {"prototypes": 16, "epsilon": 0.5},
            "grid-m128-eps20_0": {"prototypes": 128, "epsilon": 20.0},
        }.items()
    ),
    *(
        Difference(COLLAGE, key, before, now, OF_CODE)
        for key, before, now in (
            ("tasks.cifar100.source", "cifar100", "cifar100_super"),
            ("gsp_collages.cifar_collage.background_classes", BACKGROUNDS, SUPER_BACKGROUNDS),
            ("gsp_folds.protocol.kind", "fair", "conventional"),
            ("gsp_folds.protocol.folds", 4, 1),
            ("gsp_folds.backbone.mean", None, [0.5, 0.5, 0.5]),
            ("gsp_folds.backbone.std", None, [1.0, 1.0, 1.0]),
            ("gsp_folds.augmentation", FLIPPED, None),
        )
    ),
    Difference(f"gsp-* mrt vit48 {PHOTOGRAPHS}", "images.listed_shares", ABSENT, AS_ROOT, NEW),
    *(
        Difference(f"gsp-* mrt vit48 imagenet {PHOTOGRAPHS}", f"images.{name}", ABSENT, AS_ROOT, "new, and off")
        for name in ("stored", "quality")
    ),
    Difference("imagenet", "images.listed_shares", ABSENT, [0.01, 0.1], "new: SimCLR's lists, as the paper's Table V"),
    *(Difference("mrt vit48", f"mpcl_{n}.crop_ratio", ABSENT, AS_ROOT, NEW) for n in ["encoder", "probe.linear"]),
    Difference("mrt", "mpcl_probe.fine_tuning.crop_ratio", ABSENT, AS_ROOT, NEW),
    *(
        Difference(f"imagenet {PHOTOGRAPHS}", f"mpcl_{n}.crop_ratio", ABSENT, 1.3333, PUBLISHED_CROP)
        for n in ["encoder", "probe.linear"]
    ),
    Difference("imagenet", "mpcl_probe.fine_tuning.crop_ratio", ABSENT, 1.3333, PUBLISHED_CROP),
    *(
        Difference(names, f"mpcl_probe.{n}.augmentation.smallest_crop", 0.2, 0.08, PUBLISHED_CROP)
        for names, n in ((f"imagenet {PHOTOGRAPHS}", "linear"), ("imagenet", "fine_tuning"))
    ),
    Difference("imagenet100-barlow", "mpcl_probe.linear.classifier_rate", 30, 0.3, "Barlow Twins' own, not MoCo's"),
    Difference("imagenet100-barlow", "mpcl_probe.linear.weight_decay", 0, 0.000001, "Barlow Twins' own, not MoCo's"),
    Difference("imagenet100-vit", "mpcl_encoder.batch", 2048, 4096, "as Table VII, but for two rows"),
    *(Difference("gsp-*", f"mpcl_{n}", ABSENT, AS_ROOT, OFF) for n in ["encoder", "probe", "report"]),
    *(
        Difference("gsp-*", f"tll_{n}", ABSENT, AS_ROOT, OFF)
        for n in ["pairs", "features", "pca", "adaptation", "report"]
    ),
]


@functools.cache
def composed(profile: str) -> dict:
    return YAML(typ="safe").load(compose.compose(ROOT / "profiles" / profile))


def digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def undo(values: dict, difference: Difference) -> None:
    """Puts the value of before in place of that of now, which must be there."""
    *sections, key = difference.key.split(".")
    for section in sections:
        values = values[section]
    if difference.before is ABSENT:
        met = json.loads(json.dumps(values.pop(key)).replace("../../", ""))
        root = YAML(typ="safe").load((ROOT / "params.yaml").read_text())
        for name in [*sections, key]:
            root = root.get(name, {})
        wanted = root if difference.now is AS_ROOT else difference.now
        assert wanted is ANY or met == wanted, f"{difference.key} is {met}: name that in DIFFERENCES"
        return
    met = values.get(key, ABSENT)
    assert met == difference.now, f"{difference.key} is {met}: name that in DIFFERENCES"
    values[key] = difference.before


def test_undo__takes_out_a_new_key() -> None:
    values = {"fusion": {"average": None, "new": 1}, "adaptor": {}}
    undo(values, Difference("*", "fusion.new", ABSENT, ANY, "a fusion made of another's settings"))
    assert values == {"fusion": {"average": None}, "adaptor": {}}


@pytest.mark.parametrize("profile", sorted(set(PROFILES) - YOUNGER))
def test_profiles__say_what_they_said_but_for_the_named_differences(profile: str) -> None:
    values = copy.deepcopy(composed(profile))
    for difference in DIFFERENCES:
        if difference.is_of(profile):
            undo(values, difference)
    before = {section: d for section, met in BEFORE.items() for d, names in met.items() if profile in names.split()}
    assert before, f"{profile} is new: no test compares it, so name it in YOUNGER"
    now = {section: digest(value) for section, value in values.items()}
    differing = {
        section: values.get(section) for section in sorted(now | before) if now.get(section) != before.get(section)
    }
    assert not differing, f"{profile} differs; name each wanted difference in DIFFERENCES: {differing}"


def test_profiles__each_difference_is_of_a_profile() -> None:
    assert all(any(difference.is_of(profile) for profile in PROFILES) for difference in DIFFERENCES)
    assert {name for met in BEFORE.values() for names in met.values() for name in names.split()} == set(
        PROFILES
    ) - YOUNGER


@pytest.mark.parametrize("profile", PROFILES)
def test_profiles__only_the_data_are_missing(profile: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError) as caught:
        check(copy_profile(tmp_path, profile))
    wrong = str(caught.value).splitlines()[1:]
    items = [item for name in ("tasks", "tll") for item in composed(profile)[name].values()]
    assert len(wrong) == sum("data/raw/" in item["path"] for item in items) > 0
    assert all("data/raw/" in line and line.endswith("does not exist") for line in wrong), wrong


def test_profiles__are_short_together() -> None:
    lengths = [len((ROOT / "profiles" / name / "values.yaml").read_text().splitlines()) for name in PROFILES]
    assert sum(lengths) < MOST_LINES


@pytest.mark.parametrize("profile", PROFILES)
def test_profiles__hold_nothing_but_values(profile: str) -> None:
    """The composed file is made where it is wanted, and the link when a profile is first used: a plain `dvc status`
    would list the stages of every profile."""
    folder = ROOT / "profiles" / profile
    graph = folder / "dvc.yaml"
    assert not os.path.lexists(graph) or (graph.is_symlink() and graph.resolve() == ROOT / "dvc.yaml")
    assert not (folder / "params.yaml").exists() or (folder / "params.yaml").read_text().startswith(compose.MARK)
