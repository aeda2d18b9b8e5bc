"""A folder or a zip with ImageNet's train/ and val/, which are the split."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from polygrain.sources import folder
from polygrain.sources.decode import decode_all
from polygrain.sources.kind import Ask, Assignment, Candidates, Kind
from polygrain.store.image_table import share_file
from polygrain.store.reading import read_lines


class Splits(Kind):
    def open(self, raw: Path, ask: Ask) -> Candidates:
        """ValueError if the two do not hold the same classes."""
        place = ask.unpacked(raw)
        listings = {part: folder.find(place / part) for part in ("train", "val")}
        train, test = (set(listing.images.values()) for listing in listings.values())
        if odd := sorted(train ^ test):
            first = odd[0] or "none"
            raise ValueError(f"{place}: {len(odd)} classes are in one of train and val only, the first: {first}")
        labels = {name: i if name else -1 for i, name in enumerate(sorted(train))}
        rows = {
            f"{part}/{path}": Assignment(labels[name], name, "train" if part == "train" else "test")
            for part, listing in listings.items()
            for path, name in sorted(listing.images.items(), key=lambda item: (item[1], item[0]))
        }
        rejected = {f"{part}/{path}": why for part, of in listings.items() for path, why in of.rejected.items()}
        training = [path for path, row in rows.items() if row.split == "train"]
        shares = {share: read_share(place, share, training) for share in ask.params.listed_shares}
        return Candidates(rows, decode_all(place, list(rows), ask.params.side, ask.params.shape), rejected, shares)


def read_share(root: Path, share: float, training: Iterable[str]) -> list[str]:
    """The training images that the list of a share beside the images names, a file name a line, in the list's order.

    Such lists are published: SimCLR's 1 % and 10 % of ImageNet. ValueError if the list is missing, or if a line is not
    the name of exactly one training image.
    """
    file = share_file(root, share)
    if not file.is_file():
        raise ValueError(
            f"{file} does not exist, which images.listed_shares asks for with {share:g}: lay the list there, a file's "
            "name a line, or take the share out and the probe draws its own"
        )
    paths: dict[str, list[str]] = {}
    for path in training:
        paths.setdefault(PurePosixPath(path).name, []).append(path)
    lines = read_lines(file, "lay the published list there, in UTF-8, a file's name a line")
    names = [line.strip() for line in lines if line.strip()]
    for name, count in Counter(names).items():
        if count > 1 or len(paths.get(name, ())) != 1:
            raise ValueError(f"{file}: {name[:80]!r} must be there once, and name one of the training images")
    return [paths[name][0] for name in names]


KIND = Splits()
