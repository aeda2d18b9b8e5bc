"""Counts of images in folders, zips and streams, by names and labels."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from polygrain.compute.counted import counted
from polygrain.sources import folder
from polygrain.sources.kind import Found
from polygrain.sources.kinds import FILES, kind_of
from polygrain.sources.look import Look

UNSAFE = re.compile(r"['\n]|\$\{")  # it would end a path in a command, or be read as another value


QUERIES = 0.2  # images.queries of a new profile
FEWEST = 50  # choice.criterion.fewest


class Folder(Found):
    """The images of one task, and their description."""

    @property
    def train_images(self) -> int:
        """Images that train, about: all but the queries, and all unlabelled ones."""
        return round((1 if "" in self.classes else 1 - QUERIES) * sum(self.classes.values()))

    def unmeasured(self) -> list[str]:
        """A sentence for each measure that so small a task does not allow."""
        lines, train = [], self.train_images
        if "" not in self.classes and max(self.classes.values()) < 2:
            lines.append("no class has two images, so nothing can be found: the report cannot measure this task")
        if train < FEWEST:
            lines.append(
                f"{counted(train, 'image')} to train on, and the choice needs {FEWEST}: this task does not count in it"
            )
        return lines

    def describe(self) -> str:
        kind = "without labels, so not evaluated"
        if "" not in self.classes:
            classes = counted(len(self.classes), "class", "classes")
            # A fifth of each class is drawn, in whole images, and some files may be duplicates.
            kind = f"of {classes} ({folder.few(list(self.classes))}), about {self.train_images:,} of them to train on"
        images = counted(sum(self.classes.values()), "image")
        return ", ".join(filter(None, [f"{'about ' * self.is_estimate}{images} {kind}", self.labels]))


def examine(given: str) -> Folder:
    """The images of a folder, a zip, tars or Parquet files (one, a folder or a pattern), or an s3://bucket/prefix.

    ValueError where it holds no image, or too few classes for what it is given as.
    """
    if UNSAFE.search(given):
        raise ValueError(f"{given!r} has a quote, a line break or ${{ in it: rename it")
    path = Path(given)
    listing = folder.walk(path, tracked=True) if "://" not in given and path.is_dir() else None
    asked = sorted(FILES, key=lambda name: name == "folder")  # the last one, for it takes any path
    result = Folder(*next(found for name in asked if (found := kind_of(name).find(given, listing))))
    if not result.classes:
        raise ValueError(f"{given} holds no image; {folder.reasons(Counter(result.left_out))}")
    if len(result.classes) == 1 and "" not in result.classes and not result.is_estimate:
        raise ValueError(f"{given} holds one class only ({next(iter(result.classes))}): give two, or images without")
    return result


def look(task: Folder) -> Look:
    """A look at the files, its lines with all that a run will leave out."""
    seen = kind_of(task.source).look(task)
    left_out = Counter(task.left_out) + seen.left_out
    total = sum(task.classes.values()) + sum(task.left_out.values())
    reasons = [folder.reasons(left_out, total)] if left_out else []
    return seen._replace(lines=reasons + seen.lines)


def task_names(given: Sequence[str]) -> dict[str, str]:
    """A name for each folder, taken from its own, numbered where two would be the same, or like a column of results."""
    tasks: dict[str, str] = {}
    for path in given:
        if path in tasks.values():
            raise ValueError(f"{path} is given twice: give each folder once")
        name = folder.composed(path.rstrip("/").rpartition("/")[2])
        last = re.sub(r"(.*)\.(tar|parquet|zip)$", r"\1", name.lower())
        plain = re.sub(r"[^a-z0-9_]+", "-", last).strip("-_") or "images"
        name, number = plain, 2
        while name in (*tasks, "mean"):
            name, number = f"{plain}-{number}", number + 1
        tasks[name] = path
    return tasks
