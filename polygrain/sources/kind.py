"""A kind of image source: `polygrain new` recognises it, and the stage `images` opens it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from polygrain.sources.decode import Picture
from polygrain.sources.look import Look, judged

if TYPE_CHECKING:
    from polygrain.sources.streams.stream import Stream

Listing = tuple[list[str], dict[str, str]]  # of `folder.walk`


class Found(NamedTuple):
    """The images that a path or address holds, counted by names and labels; `labels` says where those are from.

    `classes` is {class name: images}, with the one name "" without labels, `left_out` {reason: entries}, `files` the
    pattern of the names that are read, and `listing` the text of an object store's listing file.
    """

    source: str
    path: Path | str
    classes: dict[str, int]
    left_out: Mapping[str, int] = {}
    labels: str = ""
    files: str = "*"
    is_estimate: bool = False
    listing: str | None = None


class Ask(NamedTuple):
    """The request of `images`: its `Params`, values of the task, and a function that unpacks a zip, if it is one."""

    params: Any
    unseen: bool
    files: str
    unpacked: Callable[[Path], Path]


class Assignment(NamedTuple):
    """Class number, class name and split of an image."""

    label: int
    class_name: str
    split: str


class Candidates(NamedTuple):
    """Rows by path, in order, and for each a picture or the reason why there is none, in the same order.

    `rejected` is {path: reason} of files that were left out already, `shares` the paths in each published list of few
    images. A published set keeps its duplicates.
    """

    rows: dict[str, Assignment]
    outcomes: Iterator[Picture | str]
    rejected: dict[str, str]
    shares: Mapping[float, list[str]] = {}
    is_published: bool = False


class Kind(ABC):
    """A kind of image source."""

    def find(self, given: str, listing: Listing | None) -> Found | None:
        """The images of a path or address, None where it is of another kind; `listing`: of a folder."""
        return None

    def look(self, found: Found) -> Look:
        """A look at some of the images; here, at none."""
        return judged([], sum(found.classes.values()))

    @abstractmethod
    def open(self, raw: Path, ask: Ask) -> "Candidates | Stream":
        """The images, decoded one by one, or a stream of them that `images` decodes."""


def assign(class_names: list[str], unseen: bool = False) -> dict[str, Assignment]:
    """The assignment of each class, for sorted names: the first half trains; the class of flat folders is ""."""
    if class_names == [""]:
        if unseen:
            raise ValueError("a flat folder has no labels, so as an unseen task it could not be evaluated")
        return {"": Assignment(-1, "", "train")}
    half = 0 if unseen else (len(class_names) + 1) // 2
    return {name: Assignment(i, name, "train" if i < half else "test") for i, name in enumerate(class_names)}


def by_class(classes: dict[str, str], unseen: bool) -> dict[str, Assignment]:
    """The rows of `Candidates`, sorted by class name and path, from {path: class name}."""
    assigned = assign(sorted(set(classes.values())), unseen)
    return {path: assigned[classes[path]] for path in sorted(classes, key=lambda path: (classes[path], path))}
