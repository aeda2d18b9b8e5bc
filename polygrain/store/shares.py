"""Lists of training images that stand for a share of them, stored beside a task's images, a path a line."""

from collections.abc import Iterable
from pathlib import Path

from polygrain.store.reading import reading, remedy_for

FOLDER = "shares"


def name_of(share: float) -> str:
    """The file's name as SimCLR has it: `1percent.txt` for .01."""
    return f"{100 * share:g}percent.txt"


def write(folder: Path, share: float, paths: Iterable[str]) -> None:
    """Stores the paths, as the table of images has them."""
    file = folder / FOLDER / name_of(share)
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(f"{path}\n" for path in paths), encoding="utf-8")


def read(folder: Path, share: float) -> list[str] | None:
    """The stored paths of a share; None where no list was laid beside the images."""
    file = folder / FOLDER / name_of(share)
    if not file.exists():
        return None
    with reading(file, remedy_for(folder)):
        return file.read_text(encoding="utf-8").splitlines()
