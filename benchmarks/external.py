"""Models on a public benchmark that lies here: python -m benchmarks.external FOLDER MODEL [MODEL ...]

MODEL is a folder such as encoders/vit48 or profiles/NAME/data/choice. Nothing is downloaded. What FOLDER holds says
which benchmark it is. Images are whole, but queries of ROxford, which are cut to their boxes.

    GPR1200                   images/<class>_<name>.jpg: each asks all others
    Stanford Online Products  Ebay_test.txt and the folders that it names: each test image asks all others
    ROxford, RParis           jpg/ and gnd_*.json: easy, medium, hard; what is junk there is left out of a ranking
    ILIAS core                <object>/query/*.jpg ask <object>/pos/*.jpg of all objects

ROxford's ground truth is published as a pickle, which may run any program and is not read here. Where you trust it:

    python -c "import json, pickle, sys; json.dump(pickle.load(open(sys.argv[1], 'rb')), sys.stdout, \\
        default=lambda x: x.tolist())" gnd_roxford5k.pkl > gnd_roxford5k.json

In percent, means over the queries that have a relevant image. mAP: the mean precision at each of them, on the whole
ranking; on ROxford by the trapezoids of its own code. mAP@1000: on the first 1,000, as ILIAS has it.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from polygrain import embed, load
from polygrain.compute.blocks import blocks

CUT, BLOCK = 1000, 256
NAMES = ("mAP", f"mAP@{CUT}", "R@1", "R-Precision")


class Setting(NamedTuple):
    """Of each query the numbers of the images that are relevant, and of those that are left out of its ranking."""

    relevant: list[set[int]]
    ignored: list[set[int]]


class Benchmark(NamedTuple):
    """Images that are searched and images that ask, each with the box that is seen (left, top, right, bottom)."""

    name: str
    gallery: list[Path]
    queries: list[tuple[Path, tuple[float, ...] | None]]
    settings: dict[str, Setting]
    has_trapezoids: bool = False


def of_classes(name: str, paths: list[Path], classes: list[str]) -> Benchmark:
    """Every image asks all others; those of its class are relevant."""
    places: dict[str, set[int]] = {}
    for i, label in enumerate(classes):
        places.setdefault(label, set()).add(i)
    relevant = [places[label] - {i} for i, label in enumerate(classes)]
    own = [{i} for i in range(len(paths))]
    return Benchmark(name, paths, [(path, None) for path in paths], {"all": Setting(relevant, own)})


def images_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jpg"))


def read(folder: Path) -> Benchmark:
    """The benchmark in a folder; ValueError where it is laid out as none of them."""
    if (listing := folder / "Ebay_test.txt").exists():
        header, *lines = listing.read_text().split("\n")
        rows = [dict(zip(header.split(), line.split(), strict=True)) for line in lines if line]
        return of_classes("SOP", [folder / row["path"] for row in rows], [row["class_id"] for row in rows])
    if truths := sorted(folder.glob("gnd_*.json")):
        return revisited(folder, json.loads(truths[0].read_text()))
    if objects := sorted(path for path in folder.iterdir() if (path / "query").is_dir()):
        gallery = [path for one in objects for path in images_in(one / "pos")]
        queries = [path for one in objects for path in images_in(one / "query")]
        relevant = [{i for i, path in enumerate(gallery) if path.parts[-3] == query.parts[-3]} for query in queries]
        none: list[set[int]] = [set() for _ in queries]
        return Benchmark("ILIAS core", gallery, [(path, None) for path in queries], {"all": Setting(relevant, none)})
    if paths := [path for path in images_in(folder / "images") if re.match("[0-9]+_", path.name)]:
        return of_classes("GPR1200", paths, [path.name.split("_")[0] for path in paths])
    raise ValueError(f"{folder} is laid out as none of GPR1200, Stanford Online Products, ROxford and ILIAS core")


def revisited(folder: Path, truth: dict) -> Benchmark:
    """ROxford and RParis (Radenovic et al., 2018): easy, medium and hard."""
    gallery, queries = ([folder / "jpg" / f"{name}.jpg" for name in truth[key]] for key in ("imlist", "qimlist"))
    kinds = {"easy": (["easy"], ["hard"]), "medium": (["easy", "hard"], []), "hard": (["hard"], ["easy"])}
    settings = {
        name: Setting(
            [{i for key in found for i in one[key]} for one in truth["gnd"]],
            [{i for key in [*left, "junk"] for i in one[key]} for one in truth["gnd"]],
        )
        for name, (found, left) in kinds.items()
    }
    asked = [(path, tuple(one["bbx"])) for path, one in zip(queries, truth["gnd"], strict=True)]
    return Benchmark(folder.name, gallery, asked, settings, has_trapezoids=True)


def measures(hits: np.ndarray, relevant: int, has_trapezoids: bool) -> tuple[float, ...]:
    """The numbers of one query, in the order of `NAMES`, from what is relevant in its whole ranking."""
    ranks = np.flatnonzero(hits)
    precisions = np.arange(1, len(ranks) + 1) / (ranks + 1)
    before = np.where(ranks > 0, np.arange(len(ranks)) / np.maximum(ranks, 1), 1.0)
    average = ((precisions + before) / 2 if has_trapezoids else precisions).sum() / relevant
    cut = precisions[ranks < CUT].sum() / min(CUT, relevant)
    return average, cut, float(hits[0]), hits[:relevant].sum() / relevant


def score(gallery: np.ndarray, queries: np.ndarray, setting: Setting, has_trapezoids: bool = False) -> np.ndarray:
    """The numbers of each query that has a relevant image: query x measure. Rows are of unit length."""

    def numbers() -> Iterator[tuple[float, ...]]:
        for part in blocks(len(queries), BLOCK):
            order = np.argsort(-(queries[part] @ gallery.T), axis=1, kind="stable")
            for query, ranking in zip(range(part.start, part.stop), order, strict=True):
                if relevant := setting.relevant[query]:
                    ranking = ranking[~np.isin(ranking, list(setting.ignored[query]))]
                    yield measures(np.isin(ranking, list(relevant)), len(relevant), has_trapezoids)

    return np.array(list(numbers()))


def seen(path: Path, box: tuple[float, ...] | None) -> Path | Image.Image:
    if box is None:
        return path
    with Image.open(path) as image:
        return image.convert("RGB").crop(tuple(map(round, box)))


def main(folder: Path, models: list[Path]) -> None:
    benchmark = read(folder)
    print(f"| {benchmark.name} | model | {' | '.join(NAMES)} | queries |\n|---|---|{'---:|' * (len(NAMES) + 1)}")
    for place in models:
        model = load(place)
        gallery = embed(model, benchmark.gallery)
        is_own = [path for path, _ in benchmark.queries] == benchmark.gallery
        queries = gallery if is_own else embed(model, [seen(*query) for query in benchmark.queries])
        for name, setting in benchmark.settings.items():
            numbers = score(gallery, queries, setting, benchmark.has_trapezoids)
            means = " | ".join(f"{100 * value:.2f}" for value in numbers.mean(0))
            print(f"| {name} | {place} | {means} | {len(numbers)} |")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), [Path(word) for word in sys.argv[2:]])
