"""A profile for one's own images, which `polygrain new` asks for: its values.yaml, composed and ready to run."""

import math
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML

from polygrain.config import compose
from polygrain.config.folders import Folder, look, task_names

# The root's characters must not be mirrored nor cut down to a stroke, but may be bold or tinted: photographs the other
# way. Adaptors also take longer to learn from them.
CROP = {"smallest_crop": 0.2, "turn": 15, "flip": 0.5, "stroke": 0, "jitter": 0.1, "tint": 0, "grey": 0, "blur": 0.3}
VIEWS = {"smallest_crop": 0.2, "flip": 0.5, "stroke": 0, "tint": 0}
PRETRAINING = VIEWS | {"smallest_crop": 0.4, "turn": 10, "jitter": 0.4, "grey": 0.2, "blur": 0}
OFF = ("mpcl", "tll", "gsp_collages", "gsp_runs", "gsp", "gsp_studies")


class Settings(NamedTuple):
    """What suits the encoder and the machine, beside the images; the defaults are for the encoder that ships."""

    encoder: Mapping[str, Any] = {}
    """Values of the section `encoder` where they are not the root's."""
    side: int = 48
    """of the encoder's input, px"""
    stored: int = 96
    """side of the stored squares, px"""
    cost: float = 2.25
    """passes that the chosen model may take"""
    epochs: int | None = None
    """of the adaptors and of distillation; the fusions take half of them, rounded up. None: 6, and as the root"""
    batches: Mapping[str, int] = {}
    """of `adaptor`, `fusion`, `distillation`, and `features` without training, where they are smaller than usual"""


def sections(tasks: Mapping[str, Folder], ks: Sequence[int], settings: Settings) -> list[tuple[str, dict[str, Any]]]:
    """The values of the profile in groups, each with its comment."""
    epochs, batches = settings.epochs, settings.batches

    def sized(part: str, count: int | None = None) -> dict[str, int]:
        return ({"epochs": count} if count else {}) | ({"batch": batches[part]} if part in batches else {})

    sizes = {"resize": settings.stored, "crop": settings.stored}
    views = {"augmentation": VIEWS} | sized("fusion", epochs and math.ceil(epochs / 2))
    learning = views | {"augmentation": VIEWS | {"jitter": 0.2}}
    seeing = sized("features")
    times = settings.stored / settings.side
    return [
        (
            "A task for each folder. To test one only, add `unseen: true`.",
            {"tasks": {name: task_values(name, task) for name, task in tasks.items()}},
        ),
        (
            f"k of k-means, fitted to {sum(task.train_images for task in tasks.values())} images to train on. Each has "
            "an adaptor set. `seeds.largest` is the largest.",
            {"granularities": list(ks), "seeds": {"largest": max(ks)}},
        ),
        (
            f"Stored squares have {times:.3g} times the side that the encoder sees: a careful look sees more.",
            {
                "images": {"side": settings.stored},
                "encoder": dict(settings.encoder) | sizes,
            }
            | ({"features": seeing, "evaluation": seeing} if seeing else {}),
        ),
        (
            "Adaptors: the criterion keeps the best epoch. A task whose left and right differ, such as text, needs "
            "`flip: 0`\n# here and below, and `mirrored: false`.",
            {
                "adaptor": {"epochs": epochs or 6, "batch": batches.get("adaptor", 64), "learning_rate": 0.003}
                | {"augmentation": CROP}
            },
        ),
        (
            "Fusions learn from pairs of views.",
            {
                "fusion": {"augmentation": views, "neighbour": learning, "static": learning, "supervised": learning},
                "baseline": {"one_set": "${fusion.augmentation}", "many_sets": "${fusion.augmentation}"},
                "supervised_model": {"full": learning, "one": learning, "many": learning},
            },
        ),
        (
            "Distillation, the gentlest: no target is mixed with those of the nearest images.",
            {
                "distillation": {"target": {"mirrored": True}, "neighbours": 0, "augmentation": {"flip": 0.5}}
                | sized("distillation", epochs)
            },
        ),
        (
            "The model may see 1.5 times the side, at so many times the cost; 1: as cheap as the encoder.",
            {
                "resolution": {"cost": settings.cost},
                "choice": {"reference": "${distillation.target}"}
                | {"criterion": {"trained": "${adaptor.augmentation}"} | seeing},
            },
        ),
        (
            "Off: pretraining, visual analogies, metric learning with labels. The root's params.yaml has an example of "
            "each.",
            {name: {} for name in OFF},
        ),
        (
            "Views of photographs, for when pretraining is on.",
            {"mpcl_encoder": {"views": [PRETRAINING, PRETRAINING]}, "mpcl_probe": {"view": PRETRAINING}},
        ),
    ]


def task_values(name: str, task: Folder) -> dict[str, Any]:
    """What the profile says of a task; an object store's listing lies beside it."""
    path = f"{name}.json" if task.listing else str(task.path)
    files = {"files": task.files} if task.files != "*" else {}
    return {"source": task.source, "path": path} | files | ({"unseen": True} if task.unseen else {})


def written(name: str, groups: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """The text of values.yaml."""
    yaml, stream = YAML(typ="safe", pure=True), StringIO()
    yaml.width, yaml.sort_base_mapping_type_on_output = 120, False
    yaml.representer.ignore_aliases = lambda value: True
    stream.write(
        f"# {name}: your images, and the values that suit photographs. All others are as in params.yaml at the root,\n"
        f"# and any of them may be set here in the same way. After a change: polygrain run --profile {name}\n"
    )
    for comment, values in groups:
        stream.write(f"\n# {comment}\n")
        yaml.dump(values, stream)
    return stream.getvalue()


def ladder(train_images: int, rungs: int = 3) -> list[int]:
    """Up to `rungs` numbers of clusters, each a quarter of the next, the largest a power of two with 2 images each."""
    if train_images < 4:
        raise ValueError(f"{train_images} images to train on are too few: give 4 or more")
    largest = 1 << ((train_images // 2).bit_length() - 1)
    return sorted(k for k in (largest >> (2 * rung) for rung in range(rungs)) if k >= 2)


def granularities(choice: str, train_images: int) -> list[int]:
    """The numbers of clusters for `ladder`, `auto`, or a list such as `1500,1950`; ValueError where they do not fit."""
    if choice == "ladder":
        return ladder(train_images)
    if choice == "auto":  # what the paper does at its scale
        ks = [4**power for power in range(4, 32) if 4**power <= train_images]
        if not ks:
            raise ValueError(
                f"{train_images} images to train on are too few for --granularities auto: give 256 or more"
            )
        return ks
    if not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", choice):
        raise ValueError(f"--granularities is {choice!r}: give ladder, auto, or numbers such as 256,1024")
    ks = sorted(set(map(int, choice.split(","))))
    if not 2 <= ks[0] <= ks[-1] <= train_images:
        raise ValueError(f"--granularities is {choice}: allowed are 2 to {train_images}, the images to train on")
    return ks


def create(
    root: Path,
    name: str,
    images: Sequence[Path | str],
    choice: str = "ladder",
    unseen: Sequence[Path | str] = (),
    settings: Settings | None = None,
) -> list[str]:
    """Writes the profile whole or not at all; returns what to tell the user, a line each.

    `images` and `unseen`, which are evaluated only, are what `folders.look` takes. ValueError says which word is wrong.
    """
    profile = free(root, name)
    given = [str(word) if "://" in str(word) else str(Path(word).resolve()) for word in (*images, *unseen)]
    tasks = {task: look(path, path in given[len(images) :]) for task, path in task_names(given).items()}
    train_images = sum(task.train_images for task in tasks.values())
    ks = granularities(choice, train_images)
    profile.mkdir(parents=True)
    try:
        for task, folder in tasks.items():
            if folder.listing:
                (profile / f"{task}.json").write_text(folder.listing, encoding="utf-8")
        text = written(name, sections(tasks, ks, settings or Settings()))
        (profile / "values.yaml").write_text(text, encoding="utf-8")
        (profile / "dvc.yaml").symlink_to("../../dvc.yaml")
        compose.renew(profile)
    except BaseException:
        shutil.rmtree(profile)
        raise
    lines = [f"{task}: {folder.describe()}" for task, folder in tasks.items()]
    lines.append(f"granularities: k = {', '.join(map(str, ks))}, for {train_images} training images")
    return [*lines, f"wrote {profile.relative_to(root)}/values.yaml; next: polygrain run --profile {name}"]


def free(root: Path, name: str) -> Path:
    """The folder of a new profile; ValueError where the name is none, or taken."""
    if not re.fullmatch(r"[a-z0-9_-]+", name):
        raise ValueError(f"NAME is {name!r}: use small letters, digits, - and _ only")
    profile = root / "profiles" / name
    if os.path.lexists(profile):
        raise ValueError(
            f"{profile} exists: choose another name, or remove it and all its results with `rm -r {profile}`"
        )
    return profile
