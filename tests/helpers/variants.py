"""A toy of each kind of variant: {place: its text, or {a line: what goes before it}}; variant_checks.py tries them."""

ROWS = "polygrain/report/rows.py"
IN_ORDER = "    SUPERVISED,\n"

# By their rows in CONTRIBUTING.
TOYS: dict[str, dict[str, str | dict[str, str]]] = {
    "an image source": {
        "polygrain/sources/kinds/toy.py": '''
"""An .npz of pictures, an array for each class."""

from pathlib import Path

import numpy as np
from PIL import Image

from polygrain.sources.installed import picture
from polygrain.sources.kind import Ask, Candidates, Found, Kind, Listing, by_class
from polygrain.store.rectangle import rectangle


class Toy(Kind):
    def find(self, given: str, listing: Listing | None) -> Found | None:
        if not given.endswith(".npz"):
            return None
        with np.load(given, allow_pickle=False) as arrays:
            return Found("toy", Path(given), {name: len(arrays[name]) for name in arrays})

    def open(self, raw: Path, ask: Ask) -> Candidates:
        with np.load(raw, allow_pickle=False) as arrays:
            images = {f"{name}/{i:03d}": (name, image) for name in arrays for i, image in enumerate(arrays[name])}
        rows = by_class({path: name for path, (name, _) in images.items()}, ask.unseen)
        squares = (rectangle(Image.fromarray(images[path][1]), ask.params.side, ask.params.shape) for path in rows)
        return Candidates(rows, (picture(square, len(square)) for square in squares), {})


KIND = Toy()
''',
        "tests/polygrain/sources/kinds/test_toy.py": """
import io
from collections import defaultdict

import numpy as np
from PIL import Image


def sample_toy(root, contents):
    classes = defaultdict(list)
    for path, content in contents.items():
        classes[path.split("/")[0]].append(np.asarray(Image.open(io.BytesIO(content)).convert("RGB")))
    np.savez(root / "toy.npz", **{name: np.stack(images) for name, images in classes.items()})
    return str(root / "toy.npz")
""",
    },
    "a public data set": {
        "polygrain/sources/datasets/sets.py": {
            "CIFAR10 = PublicSet(\n": '''
@PublicSet(Counts(2, 4, 2, 4), "https://example.org/toy", inside("toy", "images"))
def toy_set(root: Path) -> Records:
    """A folder for each class."""
    paths = sorted((root / "toy/images").glob("*/*.jpg"))
    return by_order(paths, [path.parent.name for path in paths])

'''
        },
        "tests/helpers/layouts.py": {
            "# Of each data set of files, by its name.\n": """
def toy_set(root, each):
    for label, name in enumerate("abcd"):
        for i in range(each):
            paint(root / f"toy/images/{name}/{i}.jpg", label, i, "toy")

"""
        },
    },
    "an encoder family": {
        "polygrain/encoder/families/toy.py": '''
"""Plain networks of convolutions: VGG."""

from torch import nn

from polygrain.encoder.families.family import Family, Place


class Toy(Family):
    @classmethod
    def claims(cls, network: nn.Module) -> bool:
        return type(network).__name__ == "VGG"

    def places(self) -> list[Place]:
        parts = self.network.features._modules.items()
        return [(self.network.features, key) for key, part in parts if isinstance(part, nn.ReLU)]
''',
        "polygrain/encoder/families/__init__.py": {
            "\nFAMILIES: ": "from polygrain.encoder.families.toy import Toy\n",
            "Family)\n\n": "Toy, ",
        },
    },
    "a pooling": {
        "polygrain/gsp/poolings/toy.py": '''
"""A mean, times a factor."""

from jaxtyping import Float
from torch import Tensor

from polygrain.config.schema import Factor
from polygrain.gsp.poolings.pooling import Pooled, Pooling


class Toy(Pooling, name="toy"):
    def __init__(self, channels: int, factor: Factor) -> None:
        super().__init__(channels)
        self.factor = factor

    def forward(self, maps: Float[Tensor, "batch channel y x"]) -> Pooled:
        return Pooled(self.factor * maps.mean((2, 3)))
''',
        "polygrain/gsp/poolings/build.py": {"    weldon,\n": "    toy,\n"},
        "tests/polygrain/gsp/poolings/twins.py": {
            "def weldon(": "def toy(pool, image, factor=2.0):\n    return factor * gap(pool, image)\n\n\n"
        },
    },
    "a metric-learning loss": {
        "polygrain/losses/metric.py": {
            "def build(": """
@loss
def toy(embedding_size: int, classes: int, margin: Margin) -> nn.Module:
    return PairSums(margin)


"""
        },
        "tests/polygrain/losses/test_metric.py": {
            "def test_known__": """
def test_toy__equals_c1():
    first, second = made('c1', margin=0.5), made('toy', margin=0.5)
    assert first(EMBEDDINGS, LABELS) == second(EMBEDDINGS, LABELS)


"""
        },
    },
    "a fusion": {
        "stages/fusion.py": {
            "    supervised: Supervised\n": '    toy_fusion: None = Field(None, description="none")\n'
        },
        ROWS: {IN_ORDER: '    Row("toy_fusion", "fusion/toy_fusion", "Toy", "", follows="adaptor"),\n'},
    },
    "a baseline": {
        "stages/baseline.py": {
            "\n    def fits(": '    toy_baseline: None = Field(None, description="none")\n',
            "    else:\n": """
    elif kind == "toy_baseline":
        model.reduce(torch.eye(model.dim), torch.zeros(model.dim))
""",
        },
        ROWS: {IN_ORDER: '    Row("toy_baseline", "baseline/toy_baseline", "Toy", "", follows="features"),\n'},
    },
    "a stage": {
        "stages/toy.py": '''
"""Counts the training images of each task."""

import json
from pathlib import Path

from pydantic import Field

from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.runner import command, outputs
from polygrain.store.image_table import read_tables


class Params(schema.Section):
    factor: int = Field(ge=1, description="by which each count is multiplied")


def main(images: Path, output: Path, *, params: Params, lists: Lists) -> str:
    with outputs.folder(output) as folder:
        counts = {name: params.factor * int(read_tables(images, [name]).train.size) for name in lists.tasks}
        (folder / "counts.json").write_text(json.dumps(counts) + "\\n", encoding="utf-8")
    return f"{len(counts)} tasks"


if __name__ == "__main__":
    command.run(main, Params)
''',
        "dvc.yaml": {
            "  encoder:\n    desc": """
  toy:
    desc: Count the training images
    cmd: exec ${root}/stages/run toy data/images data/toy
"""
        },
        "params.yaml": {"mpcl_probe:\n": "toy: {factor: 1}\n"},
        "tests/test_toy.py": "def test_main__is_among_the_checks(): ...\n",
    },
    "a row of the results table": {
        ROWS: {IN_ORDER: '    Row("toy_model", "choice/toy_model", "Toy model", "a toy"),\n'}
    },
    "a section of the report": {
        "polygrain/findings/sections/toy.py": '''
"""A toy."""

from polygrain.findings.outcome import Content, Outcome


def content(found: Outcome) -> Content:
    return {"toys": len(found.lists.tasks)}
''',
        "polygrain/findings/sections/toy.html.j2": '<section id="toy"><h2>Toy</h2>{{ toys }} toys</section>\n',
        "polygrain/findings/sections/toy.md.j2": "{{ toys }} toys in Markdown\n",
        "polygrain/findings/report.py": {
            "    training,\n    use,": "    toy,\n",
            '    "Training": training,\n': '    "Toys": toy,\n',
        },
    },
    "a command": {
        "polygrain/cli/toy.py": '''
def toy() -> None:
    """Say a number.

    Example: polygrain toy
    """
    import numpy

    print(numpy.e)
''',
        "polygrain/cli/main.py": {
            "from polygrain.cli.ui import ui\n": "from polygrain.cli.toy import toy\n",
            '    ui: "starting': '    toy: "playing",\n',
        },
    },
    "an export target": {
        "polygrain/app/export/targets/toy.py": '''
"""A program of torch.export under another name."""

from polygrain.app.export.targets import torch_export

FILE = "toy.pt2"
ABOUT = "a toy"
LIBRARY = "toy"
PACKAGES = ()
SNIPPET = "Nothing loads it.\\n"
write, runner = torch_export.write, torch_export.runner
''',
        "polygrain/app/export/targets/__init__.py": {
            "\n\n\nclass Target(": ", toy",
            "torch_export, onnx)": "toy, ",
        },
    },
}
