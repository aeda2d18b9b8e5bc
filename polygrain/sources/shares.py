"""Lists of training images that a paper learnt from, laid beside the images: SimCLR's 1 % and 10 % of ImageNet."""

from collections import Counter
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from polygrain.store.collection import share_file

MOST_BYTES = 256 * 2**20


def read(root: Path, share: float, training: Collection[str]) -> list[str]:
    """The training images that the list of this share names, as paths, in the list's order.

    A line is a file's name without its folder. ValueError for a missing list, and for a line that is not the name of
    exactly one training image, or is there twice.
    """
    file = share_file(root, share)
    if not file.is_file():
        raise ValueError(
            f"{file} does not exist, which images.listed_shares asks for with {share:g}: lay the list there, a file's "
            "name a line, or take the share out and the probe draws its own"
        )
    if file.stat().st_size > MOST_BYTES:
        raise ValueError(f"{file} has {file.stat().st_size:,} bytes; a list has at most {MOST_BYTES:,}")
    lines = [line.strip() for line in file.read_text(encoding="utf-8", errors="replace").splitlines()]
    names = [line for line in lines if line]
    paths: dict[str, list[str]] = {}
    for path in training:
        paths.setdefault(PurePosixPath(path).name, []).append(path)
    if wrong := [name for name in names if len(paths.get(name, ())) != 1]:
        met = len(paths.get(wrong[0], ()))
        raise ValueError(
            f"{file} names {len(wrong)} images that are not one of the {len(training)} training images each, the "
            f"first: {wrong[0][:80]!r} (met {met} times); lay the list of these very images there"
        )
    if not names or len(set(names)) < len(names):
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        raise ValueError(f"{file} " + (f"names {twice[:80]!r} twice" if twice else "names no image"))
    return [paths[name][0] for name in names]
