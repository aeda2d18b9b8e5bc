"""A profile for one's own images, which `polygrain new` asks for: its values.yaml, composed and ready to run."""

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import SingleQuotedScalarString

from polygrain.config import compose
from polygrain.new.folders import Folder, examine, look, task_names
from polygrain.sources.look import Sizes, sizes_of

TEMPLATE = Path(__file__).with_name("photographs.yaml")
QUESTION = (
    "unsure how many images show the same thing? Then smoothing is careful; else say about how many: --alike 6 for the "
    "same product, --alike 300 for the same kind (choice.alike in values.yaml)"
)
# Granularities on which networks train, if they are to.
TRAINED = ("size2", "size8", "size24")


class EncoderSettings(NamedTuple):
    """Values for the encoder and the machine; the defaults are for the encoder that ships."""

    encoder: Mapping[str, Any] = {}
    """Values of the section `encoder` where they are not the root's."""
    side: int = 48
    """of the encoder's input, px"""
    stored: int = 96
    """side of the stored images, px"""
    cost: float = 2.25
    """passes that the recommended model may take"""
    batches: Mapping[str, int] = {}
    """of `adaptor` and `fusion`, where they are smaller than usual"""


class Work(NamedTuple):
    """The numbers of images, of those that train, of tasks and of sets of adaptors, and the sizes of images."""

    images: int
    train: int
    tasks: int
    sets: int
    sizes: Sizes


class Suited(NamedTuple):
    """EncoderSettings that suit the images, and a line about them."""

    settings: EncoderSettings = EncoderSettings()
    cost: str = ""
    better: str = ""
    """of the section `report`"""


def written(
    profile: Path,
    tasks: Mapping[str, Folder],
    granularities: Sequence[str],
    trained: Sequence[str],
    suited: Suited,
    alike: Mapping[str, int],
) -> str:
    """The text of values.yaml, with the comments of the template."""
    yaml, stream = YAML(), StringIO()
    yaml.width, yaml.default_flow_style = 120, None
    yaml.indent(mapping=2, sequence=4, offset=2)
    values, settings = yaml.load(TEMPLATE.read_text(encoding="utf-8").replace("NAME", profile.name)), suited.settings
    values["report"]["better"] = suited.better
    values["tasks"] = {task: task_values(task, folder) for task, folder in tasks.items()}
    values["granularities"], values["adaptors"] = list(granularities), list(trained)
    if not trained:
        values["fusions"] = []
        values["models"] = ["encoder", "resolution", "without_training", "recommended"]
    values["choice"]["alike"].update(alike)
    values["images"]["side"] = values["encoder"]["resize"] = values["encoder"]["crop"] = settings.stored
    values["encoder"].update(settings.encoder)
    values["resolution"]["cost"] = settings.cost
    if settings.stored == settings.side:  # a careful look at more than is stored would see no more
        values["choice"]["reference"]["scales"] = [1]
    fusions = [values["fusion"]["augmentation"], values["fusion"]["neighbour"]]  # the others are the same
    parts = {"adaptor": [values["adaptor"]], "fusion": fusions}
    for part, batch in settings.batches.items():
        for section in parts[part]:
            section["batch"] = batch
    for section in (*values["tasks"].values(), values["encoder"]):
        if path := section.get("path"):
            path = seen_from(profile, path)
            # Plain, one with a colon would be no word of YAML between braces.
            section["path"] = SingleQuotedScalarString(path) if ":" in path else path
    yaml.dump(values, stream)
    return stream.getvalue()


def seen_from(profile: Path, path: str) -> str:
    """A path as a profile writes it: relative inside the clone, so that each clone of it finds its own.

    Links stay as they were given, so that a run sees where they lead by then.
    """
    if os.path.isabs(path):
        for above in Path(path).parents:
            if above.exists() and above.samefile(profile.parents[1]):
                return os.path.relpath(path, above / "profiles" / profile.name)
    return path


def task_values(name: str, task: Folder) -> dict[str, Any]:
    """The values of a task; an object store's listing lies beside the profile."""
    path = f"{name}.json" if task.listing else str(task.path)
    files = {"files": task.files} if task.files != "*" else {}
    return {"source": task.source, "path": path} | files


def sizes(train_images: int) -> list[str]:
    """The granularities of the template in which this number of images makes two clusters or more."""
    known = YAML(typ="safe").load(TEMPLATE.read_text(encoding="utf-8"))["granularities"]
    return [name for name in known if train_images // int(name.removeprefix("size")) >= 2]


def create(
    root: Path,
    name: str,
    images: Sequence[Path | str],
    train: bool = False,
    suit: Callable[[Work], Suited] = lambda _: Suited(),
    alike: Sequence[int] = (),
) -> list[str]:
    """Writes the profile whole or not at all; returns what to tell the user, a line each.

    `images` are what `folders.examine` takes. `suit` is called after all words here were checked. `alike`:
    about how many images show the same thing, of all tasks or of each. ValueError says which word is wrong.
    """
    profile = free(root, name)
    if len(alike) not in (0, 1, len(images)):
        folders = f"each of {len(images)} folders"
        raise ValueError(f"--alike is given {len(alike)} times: once for all, or once for {folders}")
    given = [str(word) if "://" in str(word) else os.path.abspath(word) for word in images]
    tasks = {task: examine(path) for task, path in task_names(given).items()}
    train_images = sum(task.train_images for task in tasks.values())
    granularities = sizes(train_images)
    trained = [name for name in TRAINED if name in granularities] if train else []
    if train and not trained:
        raise ValueError(f"there are too few images to train on, {train_images}: give 4 or more")
    if train_images < 2:
        raise ValueError(f"there are too few images to train on, {train_images}: give 2 or more")
    count = sum(sum(task.classes.values()) for task in tasks.values())
    looks = {task: look(folder) for task, folder in tasks.items()}
    suited = suit(Work(count, train_images, len(tasks), len(trained), sizes_of(looks.values())))
    profile.mkdir(parents=True)
    try:
        for task, folder in tasks.items():
            if folder.listing:
                (profile / f"{task}.json").write_text(folder.listing, encoding="utf-8")
        known = dict(zip(tasks, [*alike] * len(tasks) if len(alike) == 1 else alike, strict=False))
        text = written(profile, tasks, granularities, trained, suited, known)
        (profile / "values.yaml").write_text(text, encoding="utf-8")
        compose.renew(profile)
    except BaseException:
        shutil.rmtree(profile)
        raise
    told = {task: [*looks[task].lines, *folder.unmeasured()] for task, folder in tasks.items()}
    notes = "; ".join(f"{task}: {'; '.join(words)}" for task, words in told.items() if words)
    lines = [
        "; ".join(f"{task}: {folder.describe()}" for task, folder in tasks.items()),
        f"of note: {notes}" if notes else "",
        suited.cost,
        "" if alike else QUESTION,
        f"wrote {profile.relative_to(root)}/values.yaml; next: polygrain run --profile {name}",
    ]
    return [*filter(None, lines)]


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
