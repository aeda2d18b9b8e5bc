"""A folder or a zip of images, flat or in class folders."""

from collections import Counter
from pathlib import Path

from polygrain.sources import archive, folder
from polygrain.sources.decode import decode_all
from polygrain.sources.kind import Ask, Candidates, Found, Kind, Listing, by_class
from polygrain.sources.look import Look, look_at


class Folder(Kind):
    def find(self, given: str, listing: Listing | None) -> Found:
        """By names alone: of damaged files the stage `images` says so."""
        images, rejected = folder.arrange(*listing, given) if listing else archive.find(Path(given))
        classes = dict(sorted(Counter(images.values()).items()))
        left_out = Counter(folder.kind_of(*entry) for entry in rejected.items())
        return Found("folder", Path(given), classes, left_out, folder.described(images))

    def look(self, found: Found) -> Look:
        return look_at(Path(found.path), archive.find(Path(found.path)).images)

    def open(self, raw: Path, ask: Ask) -> Candidates:
        place, (images, rejected) = ask.unpacked(raw), archive.find(raw)
        rows = by_class(images, ask.unseen)
        return Candidates(rows, decode_all(place, list(rows), ask.params.side, ask.params.shape), rejected)


KIND = Folder()
