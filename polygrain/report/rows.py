"""The rows of the results table: each with the folder of its model, and how pages name, order and draw it."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

WHITENED, CENTRED = "_whitened", "_centred"


class Row(NamedTuple):
    """`folder` is below data/; `follows`, of a fusion or baseline, the folder that DVC follows for it.

    `forms`: measured besides as it is. `line`: a hue of the frame, and dashes. `is_level`: drawn beside granularities.
    """

    name: str
    folder: str
    title: str
    about: str
    follows: str = ""
    forms: tuple[str, ...] = (WHITENED,)
    line: tuple[str, str] | None = None
    is_level: bool = False
    is_comparable: bool = True


# In the order of the table. An adaptor and a model that learns from true labels have names of their own: see `row_of`.
ADAPTOR = Row("adaptor", "", "Adaptor {}", "one granularity")
SUPERVISED = Row("supervised_model", "", "Supervised model {}", "true labels: not comparable", is_comparable=False)
ROWS = (
    Row("pixels", "images", "Raw pixels", "no model"),
    Row("encoder", "encoder", "Encoder", "frozen: the model that you start from",
        forms=(CENTRED, WHITENED), line=("grey", "5 3"), is_level=True),
    Row("resolution", "resolution", "Encoder at the chosen side", "a larger input, and nothing else",
        forms=(CENTRED, WHITENED)),
    Row("without_training", "choice/without_training", "Without training",
        "the best form of the encoder: its input, and a last layer from clusters", forms=()),
    Row("closed_form", "baseline/closed_form", "Closed form",
        "a linear layer from the pseudo-labels of all granularities", follows="pseudo_labels"),
    Row("one_set", "baseline/one_set", "One random set", "M+A_1: learns from pairs of views, without clusters",
        follows="features"),
    Row("many_sets", "baseline/many_sets", "Random sets, fused", "M*(random): trained together on pairs of views",
        follows="features"),
    ADAPTOR,
    Row("oracle", "", "Oracle", "best adaptor per task, chosen with test labels: not comparable", is_comparable=False),
    Row("average", "fusion/average", "Average fusion", "one model: the mean of all adaptors",
        follows="adaptor", line=("amber", "1.5 3"), is_level=True),
    Row("augmentation", "fusion/augmentation", "Augmentation fusion",
        "one model; its attention learns from pairs of views",
        follows="images", line=("pink", "8 3 1.5 3"), is_level=True),
    Row("neighbour", "fusion/neighbour", "Neighbour fusion", "one model; its attention learns from pairs of neighbours",
        follows="refreshed_graph", line=("green", "none"), is_level=True),
    Row("static", "fusion/static", "Static neighbour fusion",
        "the same, with neighbours of the encoder in every epoch", follows="knn_graph", line=("moss", "3 2")),
    Row("supervised", "fusion/supervised", "Supervised fusion",
        "its attention learns from true labels: not comparable",
        follows="images", line=("brown", "1 2"), is_comparable=False),
    SUPERVISED,
    Row("recommended", "choice", "Recommended model", "chosen without labels",
        forms=(), line=("violet", "none"), is_level=True),
)  # fmt: skip
KNOWN = {row.name: row for row in ROWS}
LEVELS = [row.name for row in ROWS if row.is_level]
LINES = {"k": ("blue", "none")} | {row.name: row.line for row in ROWS if row.line}
HOW = {"full": "all weights", "one": "one adaptor set", "many": "fused adaptor sets"}


def of_stage(stage: str) -> dict[str, str]:
    """The fusions or baselines, each with the folder that DVC follows for it."""
    return {row.name: row.follows for row in ROWS if row.folder == f"{stage}/{row.name}"}


def kind_of(model: str) -> Row:
    is_adaptor = re.fullmatch(r"(k|size)[0-9]+", model)
    return KNOWN.get(model, ADAPTOR if is_adaptor else SUPERVISED)


def row_of(name: str) -> Row:
    """The row of a model, or of a form of it: of an adaptor or one that learns from true labels with its own title."""
    model = name.removesuffix(WHITENED).removesuffix(CENTRED)
    kind, words = kind_of(model), {WHITENED: ", whitened", CENTRED: ", centred"}.get(name.removeprefix(model), "")
    task, _, how = model.rpartition("-")
    title, about = kind.title.format(model), kind.about
    if kind is SUPERVISED and task and how in HOW:
        title, about = f"Supervised on {task}", f"{HOW[how]}, {about}"
    return kind._replace(name=name, title=title + words, about=about)


def in_order(models: Iterable[str], granularities: Sequence[str]) -> list[str]:
    """The models in the order of the table, adaptors in that of the granularities."""
    places = {name: place for place, name in enumerate(granularities)}
    return sorted(models, key=lambda name: (ROWS.index(kind_of(name)), places.get(name, 0)))
