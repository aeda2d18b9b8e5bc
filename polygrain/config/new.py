"""A profile for one's own images, which `polygrain new` asks for.

Writes profiles/NAME/values.yaml, what differs from the root's params.yaml with one task per folder, composes the
profile's params.yaml from it, and links the one dvc.yaml.
"""

import json
import math
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML

from polygrain.config import profiles
from polygrain.config.folders import Folder, is_address, look, task_names

ROOT = Path(__file__).resolve().parents[2]
# The root's characters must not be mirrored nor cut down to a stroke, but may be bold or tinted: photographs the other
# way. Adaptors also take longer to learn from them.
VALUES = """\
# {name}: your images, and the values that suit photographs. All others are as in params.yaml at the root, and any of
# them may be set here in the same way. After a change: polygrain run --profile {name}
tasks:       # a folder each; to test one only, add `unseen: true`
{tasks}
granularities:           # k of k-means, fitted to {train_images} images to train on; one adaptor set each
{granularities}
seeds: {{largest: {largest}}}     # the largest k

images: {{side: {stored}}}       # {times:g} times what the encoder sees: a careful look sees more of the image
{encoder}
{seeing}adaptor:                 # of its epochs the criterion keeps the best
  epochs: {adaptor_epochs}
  batch: {adaptor_batch}
  learning_rate: 0.003
  # Mirrored, cut down to a fifth, never bold. A task whose left and right differ, such as text, needs `flip: 0`.
  augmentation: {{smallest_crop: 0.2, turn: 15, flip: 0.5, stroke: 0, jitter: 0.1, tint: 0, grey: 0, blur: 0.3}}
fusion:                  # the same for pairs of views, here and below
  augmentation: {{augmentation: &views {{smallest_crop: 0.2, flip: 0.5, stroke: 0, tint: 0}}{fusion}}}
  neighbour: &learning {{augmentation: {{<<: *views, jitter: 0.2}}{fusion}}}
  supervised: *learning
supervised_model: {{full: *learning, one: *learning}}
distillation:            # photographs may be mirrored; a task whose left and right differ needs `mirrored: false`
  target: &careful {{mirrored: true}}
  neighbours: 0          # the gentlest: no target is mixed with those of the images nearest to it
  augmentation: {{flip: 0.5}}
{distillation}resolution:
  cost: {cost:g}             # the model may see up to 1.5 times the side, at so many times the cost; 1: as cheap
choice:
  reference: *careful
{criterion}
# Off: pretraining, visual analogies, metric learning with labels. params.yaml at the root has an example of each.
mpcl: {{}}
mpcl_encoder:            # its views of photographs, for when it is on
  views: [&view {{smallest_crop: 0.4, turn: 10, flip: 0.5, stroke: 0, jitter: 0.4, tint: 0, grey: 0.2, blur: 0}}, *view]
tll: {{}}
gsp_collages: {{}}
gsp_runs: {{}}
gsp: {{}}
gsp_studies: {{}}
"""


class Settings(NamedTuple):
    """What suits the encoder and the machine, beside the images; the defaults are for the encoder that ships."""

    encoder: Mapping[str, Any] = {}
    """Values of the section `encoder` where they are not the root's; `path` as it is seen from anywhere."""
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


def described(settings: Settings) -> dict[str, Any]:
    """What VALUES wants to know of the encoder, epochs and batches."""
    lines = [f"  {key}: {'!new ' * (key == 'kwargs')}{plain(value)}" for key, value in settings.encoder.items()]
    sizes = [f"resize: {settings.stored}", f"crop: {settings.stored}"]
    epochs, batches = settings.epochs, settings.batches

    def sized(part: str, count: int | None) -> list[str]:
        known = {"epochs": count, "batch": batches.get(part)}
        return [f"{key}: {value}" for key, value in known.items() if value is not None]

    seeing = sized("features", None)
    return {
        "stored": settings.stored,
        "times": round(settings.stored / settings.side, 2),
        "encoder": "\n".join(["encoder:", *lines, *(f"  {item}" for item in sizes)])
        if lines
        else f"encoder: {{{', '.join(sizes)}}}",
        "adaptor_epochs": epochs or 6,
        "adaptor_batch": batches.get("adaptor", 64),
        "fusion": "".join(f", {item}" for item in sized("fusion", epochs and math.ceil(epochs / 2))),
        "distillation": "".join(f"  {item}\n" for item in sized("distillation", epochs)),
        "seeing": "".join(f"{section}: {{{item}}}\n" for section in ("features", "evaluation") for item in seeing),
        "criterion": "".join(f"  criterion: {{{item}}}\n" for item in seeing),
        "cost": settings.cost,
    }


def plain(value: Any) -> str:
    """A value in YAML's flow style; single quotes keep a path, which has none in it, as it is."""
    if isinstance(value, Path):
        return f"'{value}'"
    return quoted(value) if isinstance(value, str) else json.dumps(value)


def ladder(train_images: int, rungs: int) -> list[int]:
    """Up to `rungs` numbers of clusters, each a quarter of the next, the largest a power of two with 2 images each."""
    if train_images < 4:
        raise ValueError(f"{train_images} images to train on are too few: give 4 or more")
    largest = 1 << ((train_images // 2).bit_length() - 1)
    return sorted(k for k in (largest >> (2 * rung) for rung in range(rungs)) if k >= 2)


def powers_of_four(train_images: int) -> list[int]:
    """All powers of 4 from 2^8 to the number of training images: what the paper's scale does, at any scale."""
    if train_images < 256:
        raise ValueError(f"{train_images} images to train on are too few for --granularities auto: give 256 or more")
    return [4**power for power in range(4, 32) if 4**power <= train_images]


def granularities(choice: str, train_images: int, rungs: int) -> list[int]:
    """The numbers of clusters for `ladder`, `auto`, or a list such as `1500,1950`; ValueError where they do not fit."""
    if choice == "ladder":
        return ladder(train_images, rungs)
    if choice == "auto":
        return powers_of_four(train_images)
    if not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", choice):
        raise ValueError(f"--granularities is {choice!r}: give ladder, auto, or numbers such as 256,1024")
    ks = sorted(set(map(int, choice.split(","))))
    if not 2 <= ks[0] <= ks[-1] <= train_images:
        raise ValueError(f"--granularities is {choice}: allowed are 2 to {train_images}, the images to train on")
    return ks


def quoted(text: str) -> str:
    """The text as YAML; single quotes do, since a path with one in it is refused."""
    return text if YAML(typ="safe").load(text) == text else f"'{text}'"


def path_of(task: str, folder: Folder) -> str:
    """What stands in the profile for the images: an object store's listing lies beside it."""
    return f"{task}.json" if folder.listing else str(folder.path)


def written(name: str, found: dict[str, Folder], ks: list[int], train_images: int, settings: Settings) -> str:
    """The text of the profile's values.yaml."""
    tasks = []
    for task, folder in found.items():
        files = f", files: '{folder.files}'" if folder.files != "*" else ""
        words = f"source: {folder.source}, path: '{path_of(task, folder)}'{files}{', unseen: true' * folder.unseen}"
        tasks.append(f"  {quoted(task)}: {{{words}}}    # {folder.describe().partition(';')[0]}")
    return VALUES.format(
        name=name,
        tasks="\n".join(tasks),
        train_images=train_images,
        granularities="\n".join(f"  k{k}: adaptor/k{k}" for k in ks),
        largest=max(ks),
        **described(settings),
    )


def require_as_meant(params: Path, tasks: Mapping[str, str], settings: Settings) -> None:
    """ValueError where the composed values are not what this command meant."""
    values = YAML(typ="safe").load(params.read_text(encoding="utf-8"))
    wanted = {values["tasks"][task]["path"]: path for task, path in tasks.items()}
    if isinstance(settings.encoder.get("path"), Path):
        wanted[values["encoder"]["path"]] = settings.encoder["path"]
    for met, path in wanted.items():
        if met != str(path):
            raise ValueError(f"{str(path)!r} has a character in it that YAML does not keep: rename the folder")
    adaptors = sorted(value for value in values["models"].values() if value.startswith("adaptor/"))
    if adaptors != sorted(values["granularities"].values()):
        raise ValueError("in params.yaml, `models` must take its adaptors from `<<: *granularities`")


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
    settings = settings or Settings()
    given = [word if is_address(word) else Path(word).resolve() for word in (*images, *unseen)]
    tasks = task_names(given)
    found = {task: look(path, place >= len(images)) for place, (task, path) in enumerate(tasks.items())}
    train_images = sum(folder.train_images for folder in found.values())
    rungs = len(YAML(typ="safe").load((root / "params.yaml").read_text(encoding="utf-8"))["granularities"])
    ks = granularities(choice, train_images, rungs)
    # Composed under a name that no profile has, and only then put in its place.
    partial = profile.with_name(f".{name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        for task, folder in found.items():
            if folder.listing:
                (partial / path_of(task, folder)).write_text(folder.listing, encoding="utf-8")
        (partial / "values.yaml").write_text(written(name, found, ks, train_images, settings), encoding="utf-8")
        (partial / "dvc.yaml").symlink_to("../../dvc.yaml")
        profiles.compose(partial)
        meant = {task: path_of(task, folder) for task, folder in found.items()}
        require_as_meant(partial / "params.yaml", meant, settings)
        (partial / "params.yaml").unlink()
        partial.rename(profile)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    profiles.compose(profile)
    lines = [f"{task}: {folder.describe()}" for task, folder in found.items()]
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
