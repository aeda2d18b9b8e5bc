"""A public data set with its own order of classes and, if it has them, its own splits (query, gallery)."""

import os
from pathlib import Path

from PIL import Image

from polygrain.sources.datasets import load
from polygrain.sources.decode import decode_all
from polygrain.sources.installed import picture
from polygrain.sources.kind import Ask, Assignment, Candidates, Kind
from polygrain.store.rectangle import rectangle


class Public(Kind):
    def __init__(self, name: str) -> None:
        self.name = name

    def open(self, raw: Path, ask: Ask) -> Candidates:
        dataset, side, shape = load.load(self.name, raw), ask.params.side, ask.params.shape
        if ask.params.published_counts:
            load.check_counts(dataset)
        if dataset.pixels is None:
            paths = [Path(os.path.relpath(path, raw)).as_posix() for path in dataset.paths]
            outcomes = decode_all(raw, paths, side, shape, blank=True)  # its counts are published
        else:
            paths = [path.as_posix() for path in dataset.paths]
            squares = (rectangle(Image.fromarray(pixels), side, shape) for pixels in dataset.pixels)
            outcomes = (picture(pixels, dataset.pixels.shape[1]) for pixels in squares)
        is_train = dataset.is_train & (not ask.unseen)
        asked = [split if split in ("query", "gallery") else "test" for split in dataset.splits.tolist()]
        splits = ["train" if train else other for train, other in zip(is_train.tolist(), asked, strict=True)]
        names = [dataset.class_names[label] for label in dataset.labels]
        rows = map(Assignment, dataset.labels.tolist(), names, splits)
        return Candidates(dict(zip(paths, rows, strict=True)), outcomes, {}, is_published=True)
