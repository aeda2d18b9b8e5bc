"""A profile for one's own images: `python -m pipeline.new NAME --images DIR [--images DIR2 ...]`.

Writes profiles/NAME/params.yaml, the root's values with one task per folder, beside a link to the one dvc.yaml.
"""

import argparse
import os
import re
import shutil
import sys
import warnings
from pathlib import Path
from typing import NamedTuple

from PIL import Image
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parent.parent
# The same as in stages/core; copied, because nothing here depends on how a stage works. A test compares them.
SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF")
# Off in a new profile.
BRANCHES = ("mpcl", "tll", "gsp_collages", "gsp_runs", "gsp", "gsp_studies")
# The root's characters must not be mirrored nor cut down to a stroke, but may be bold or tinted: photographs the other
# way. Adaptors also take longer to learn from them.
VIEWS = {"flip: 0,": "flip: 0.5,", "smallest_crop: 0.5,": "smallest_crop: 0.2,", "stroke: 1.5,": "stroke: 0,"}
VIEWS |= {"tint: 0.2,": "tint: 0,", "jitter: 0.3,": "jitter: 0.2,"}
ADAPTOR = {
    "gamma": "10",
    "epochs": "10",
    "batch": "64",
    "learning_rate": "0.003",
    "augmentation": "{smallest_crop: 0.2, turn: 15, flip: 0.5, stroke: 0, jitter: 0.1, tint: 0, grey: 0, blur: 0.3}",
}
# dvc.yaml hands paths to a shell, and DVC fills in what looks like one of its own variables.
UNSAFE = re.compile(r"[\"'`$\\\x00-\x1f\x7f\ud800-\udfff]")


class Folder(NamedTuple):
    """What a folder of images holds, by the headers of its files."""

    path: Path
    readable: dict[str, int]
    """{class name: images}; the one class of a flat folder is "" """
    unreadable: int
    others: int

    @property
    def images(self) -> int:
        return sum(self.readable.values())

    @property
    def train_images(self) -> int:
        """Images of the first half of the classes by name, rounded up; all images of a flat folder."""
        names = sorted(self.readable)
        return sum(self.readable[name] for name in names[: (len(names) + 1) // 2])

    def describe(self) -> str:
        kind = "unlabelled, so not evaluated" if "" in self.readable else f"{len(self.readable)} classes"
        return (
            f"{self.images} images ({kind}), {self.train_images} of them to train on; "
            f"left out: {self.unreadable} unreadable, {self.others} other entries"
        )


def look(path: Path) -> Folder:
    """Counts `<path>/<class>/<image>`, or `<path>/<image>` where no folder has an image; ValueError if neither."""
    if not path.is_dir():
        raise ValueError(f"{path} {'is not a folder' if path.exists() else 'does not exist'}: give a folder of images")
    if UNSAFE.search(str(path)):
        raise ValueError(f"{str(path)!r} has a quote, $, backslash or control character in it: rename the folder")
    beside, folders, others = entries(path, path)
    readable, unreadable = {}, 0
    for folder in folders:
        inside, deeper, rest = entries(path, folder)
        others += rest + len(deeper) + (not inside)
        if inside:
            readable[folder.name] = sum(map(has_header, inside))
            unreadable += len(inside) - readable[folder.name]
    if len(readable) == 1:
        raise ValueError(
            f"{path} holds one class folder only ({next(iter(readable))}) and {len(beside)} images beside it; "
            "a labelled task needs two classes or more, an unlabelled one its images directly in the folder"
        )
    if readable:
        others += len(beside)
    else:
        readable[""] = sum(map(has_header, beside))
        unreadable = len(beside) - readable[""]
    found = Folder(path, readable, unreadable, others)
    if not found.images:
        raise ValueError(f"{path} holds no readable image: {unreadable} unreadable, {others} other entries")
    return found


def entries(root: Path, folder: Path) -> tuple[list[Path], list[Path], int]:
    """Files named like images, folders, and the number of other entries; hidden ones are ignored."""
    seen = [entry for entry in sorted(folder.iterdir()) if not entry.name.startswith(".")]
    # `images` follows no link out of the folder it was given.
    inside = [entry for entry in seen if Path(os.path.realpath(entry)).is_relative_to(os.path.realpath(root))]
    folders = [entry for entry in inside if entry.is_dir()]
    images = [entry for entry in inside if entry.is_file() and entry.suffix.lower() in SUFFIXES]
    return images, folders, len(seen) - len(folders) - len(images)


def has_header(file: Path) -> bool:
    """Whether the file begins as an image of a known format; cheap, so a damaged body is only found by `images`."""
    try:
        with warnings.catch_warnings(action="error", category=Image.DecompressionBombWarning):
            Image.open(file, formats=FORMATS).close()
    except Exception:
        # Damaged bytes make Pillow's readers raise a dozen kinds of errors; each means the same here.
        return False
    return True


def task_names(paths: list[Path]) -> dict[str, Path]:
    """A name per folder, taken from the folder's own, numbered where two would be the same."""
    tasks: dict[str, Path] = {}
    for path in paths:
        if path in tasks.values():
            raise ValueError(f"{path} is given twice: give each folder once")
        plain = re.sub(r"[^a-z0-9_]+", "-", path.name.lower()).strip("-_") or "images"
        name, number = plain, 2
        while name in tasks:
            name, number = f"{plain}-{number}", number + 1
        tasks[name] = path
    return tasks


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


def with_block(text: str, key: str, value: str, lines: list[str]) -> str:
    """The YAML text with a top-level key set to `value` and the indented `lines`; its anchor and comment stay."""
    # Text, since a round trip through ruamel cannot delete keys that a merge (`<<:`) refers to.
    block = re.compile(rf"^{key}:( &\S+)?[^#\n]*?([ ]+#.*)?\n(?:[ \t]+\S.*\n)*", re.MULTILINE)
    if len(block.findall(text)) != 1:
        raise ValueError(f"params.yaml should have one top-level key {key!r}, on a line of its own")
    opening = f" {value}" if value else ""
    rest = "".join(f"  {line}\n" for line in lines)
    return block.sub(lambda met: f"{key}:{met[1] or ''}{opening}{met[2] or ''}\n{rest}", text)


def edited(text: str, root: Path, tasks: dict[str, Path], train_images: int, choice: str) -> tuple[str, list[int]]:
    """The root's params.yaml for these tasks, and its granularities, which are fitted to the number of images."""
    yaml = YAML(typ="safe")
    fitting = granularities(choice, train_images, len(yaml.load(text)["granularities"]))
    text = with_block(text, "root", "../..", [])
    text = with_block(
        text, "tasks", "", [f"{task}: {{source: folder, path: '{path}'}}" for task, path in tasks.items()]
    )
    for branch in BRANCHES:
        if re.search(rf"^{branch}:", text, flags=re.M):
            text = with_block(text, branch, "{}", [])
    text = with_block(text, "granularities", "", [f"k{k}: adaptor/k{k}" for k in fitting])
    text = re.sub(r"^(  largest: )\d+", lambda met: f"{met[1]}{max(fitting)}", text, flags=re.M)
    for root_value, photographs in VIEWS.items():
        text = text.replace(root_value, photographs)
    for key, value in ADAPTOR.items():
        text = re.sub(rf"^(adaptor:\n(?:  .*\n)*?  {key}: )(?:\{{.*?\}}|[^\s#]+)", rf"\g<1>{value}", text, flags=re.M)
    # Paths are seen from the file they stand in, and that now lies two folders deeper.
    text = re.sub(
        r"^([ ]+path: )([^\s/]\S*)",
        lambda met: met[1] + ("../../" if (root / met[2]).exists() else "") + met[2],
        text,
        flags=re.M,
    )
    values = yaml.load(text)
    adaptors = sorted(value for value in values["models"].values() if value.startswith("adaptor/"))
    if adaptors != sorted(values["granularities"].values()):
        raise ValueError("in params.yaml, `models` must take its adaptors from `<<: *granularities`")
    return text, fitting


def create(root: Path, name: str, images: list[Path], choice: str = "ladder") -> list[str]:
    """Writes the profile whole or not at all; returns what to tell the user, a line each."""
    if not re.fullmatch(r"[a-z0-9_-]+", name):
        raise ValueError(f"NAME is {name!r}: use small letters, digits, - and _ only")
    profile = root / "profiles" / name
    if os.path.lexists(profile):
        raise ValueError(
            f"{profile} exists: choose another name, or remove it and all its results with `rm -r {profile}`"
        )
    tasks = task_names([path.resolve() for path in images])
    found = {task: look(path) for task, path in tasks.items()}
    train_images = sum(folder.train_images for folder in found.values())
    text, fitting = edited((root / "params.yaml").read_text(encoding="utf-8"), root, tasks, train_images, choice)
    partial = profile.with_name(f".{name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        (partial / "params.yaml").write_text(text, encoding="utf-8")
        (partial / "dvc.yaml").symlink_to("../../dvc.yaml")
        partial.rename(profile)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    lines = [f"{task}: {folder.describe()}" for task, folder in found.items()]
    lines.append(f"granularities: k = {', '.join(map(str, fitting))}, for {train_images} training images")
    return [*lines, f"wrote {profile.relative_to(root)}; next: .venv/bin/dvc repro profiles/{name}/dvc.yaml"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pipeline.new", description="A profile for your own images.")
    parser.add_argument("name", metavar="NAME", help="small letters, digits, - and _")
    parser.add_argument("--images", metavar="DIR", type=Path, action="append", required=True, help="one task each")
    # DVC reads the list itself, so the choice is settled here, where the images are counted.
    parser.add_argument(
        "--granularities",
        metavar="K,K,...",
        default="ladder",
        help="numbers of clusters; ladder (the default): three, the largest with 2 images each or more; auto: every "
        "power of 4 from 256 to the images",
    )
    arguments = parser.parse_args()
    try:
        lines = create(ROOT, arguments.name, arguments.images, arguments.granularities)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
