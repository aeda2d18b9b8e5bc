"""A folder with a model's programs and its card: complete and checked, or absent."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from polygrain.app.export import card
from polygrain.app.export.agreement import difference, require_agreement
from polygrain.app.export.program import has_free_sides, trace
from polygrain.app.export.targets import TARGETS
from polygrain.collection.postprocessing.comparison import Comparison
from polygrain.collection.postprocessing.comparisons import Comparisons
from polygrain.encoder import load
from polygrain.runner import outputs

CARD = "README.md"
FILES = {CARD, *(f"{target.FILE}{data}" for target in TARGETS for data in ("", ".data"))}


class Written(NamedTuple):
    """A program's name, its bytes, and its largest difference to the model."""

    name: str
    size: int
    difference: float


def mean_words(comparison: Comparison, task: str | None) -> str:
    """The mean that a program subtracts from embeddings, for its card."""
    if not comparison.mean:
        return "none is subtracted"
    of = f"of the task {card.plain(task)}" if task else "over the tasks that the model knows"
    return f"the mean {of} is subtracted"


def require_packages() -> None:
    """ValueError names the packages to install."""
    missing = [name for target in TARGETS for name in target.PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(f"{', '.join(missing)} not installed: pip install 'polygrain[export]'")


def require_free(output: Path) -> None:
    """ValueError where the folder holds anything but an earlier export, which is replaced."""
    for place in (output, output.with_name(f"{output.name}.partial")):
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            raise ValueError(f"{place} is not a plain folder; choose another with -o")
        others = sorted({path.name for path in place.iterdir()} - FILES) if place.exists() else []
        if others:
            raise ValueError(f"{place} holds {others[0]!r}, which no export wrote; choose another folder with -o")


def write(folder: Path, output: Path, uint8: bool = False, task: str | None = None) -> Iterator[Written]:
    """Exports the model of `folder` to `output`, which is complete after the last program, and yields each program.

    It subtracts the mean of a `task` from embeddings; for None the mean over tasks, if the model knows any.
    ValueError where the model cannot be exported, a program differs from it by more than 1e-4, or `output` holds
    other files.
    """
    require_packages()
    require_free(output)
    model, comparison = load(folder), Comparisons.read(folder).of(task)
    about = card.read_about(folder)
    with outputs.folder(output) as made:
        program = trace(model, uint8, comparison.mean)
        differences, free = {}, has_free_sides(program)
        for target in TARGETS:
            name = target.FILE
            target.write(program, made / name)
            differences[name] = difference(model, target.runner(made / name), uint8, comparison, free)
            require_agreement(name, differences[name])
            size = sum(file.stat().st_size for file in made.glob(f"{name}*"))
            yield Written(name, size, differences[name])
        (made / CARD).write_text(
            card.text(model, about, differences, uint8, mean_words(comparison, task), free), encoding="utf-8"
        )
