"""The card of an exported model, in Markdown: its properties, its scores, and how to load it without this project."""

import re
from pathlib import Path
from string import Template
from typing import Annotated, Any, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from polygrain.app.export.agreement import BATCHES
from polygrain.app.export.program import longest
from polygrain.app.export.targets import TARGETS
from polygrain.compute.counted import counted
from polygrain.encoder.config import WHOLE_FOLDER
from polygrain.encoder.kept import digest
from polygrain.encoder.model import Model
from polygrain.encoder.networks import published
from polygrain.report.visible import visible
from polygrain.store.reading import reading

CARD = Path(__file__).with_name("card.md")
UNKNOWN = "Not known: the model's folder has no record of it."
MEASURES = {
    "r_precision": "R-Precision in %",
    "recall_at_1": "Recall@1 in %, the share of queries whose nearest image is right",
    "criterion": "criterion of the choice, from 0 to 100, which needs no labels",
    "smoothed": "R-Precision in %, with smoothed images",
    "result": "R-Precision in %, smoothed or not, as the report recommends",
    "first_hit": "Recall@1 in %, smoothed or not, as the report recommends",
}
# Lines of the card's code: for models that see images whole, and for programs that take squares of these.
WHOLE = """\
    if longer > 1.4 * shorter:  # all of it, up to 3 to 1
        seen, side = min(longer, 3 * shorter), round({resize} * round(4 * min(longer / shorter, 3)) / 4)
"""
SQUARES = """\
    length = max(pixels.shape[1:])
    count = -(-length // {size})
    starts = [round((length - {size}) * i / max(1, count - 1)) for i in range(count)]
    return np.stack([pixels[:, :, i : i + {size}] if wide else pixels[:, i : i + {size}] for i in starts])"""
UNIT = "\nembeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)"
Line = Annotated[str, Field(max_length=2000)]
Scores = Annotated[dict[Line, dict[Line, float]], Field(max_length=100)]


class Learnt(BaseModel):
    """The images that it was trained on, without labels."""

    tasks: list[Line] = Field(max_length=1000)
    images: int = Field(ge=0)


class Choice(BaseModel):
    """The part of choice.json that the card shows."""

    model_config = ConfigDict(extra="ignore", strict=True)
    name: Line
    why: list[Line] = Field(max_length=100)
    learnt: Learnt | None = None


class About(NamedTuple):
    """Facts from a model's folder and its run's report; a bare model has no choice and no scores."""

    digest: str
    choice: Choice | None
    scores: Scores


def read_about(folder: Path) -> About:
    """Reads choice.json in the folder, and the headline of the report beside it; ValueError names a damaged file."""
    choice = read(folder / "choice.json", Choice)
    headline = read(folder.resolve().parent / "report/headline.json", Scores) if choice else None
    return About(digest(folder), choice, headline or {})


def text(
    model: Model,
    about: About,
    differences: dict[str, float],
    uint8: bool,
    mean: str = "none is subtracted",
    free: bool = False,
) -> str:
    """The card of a model; `differences[file]` is the largest difference of an exported program to the model, `free`
    whether the programs take rectangles."""
    config, choice = model.config, about.choice
    size, is_whole = config.size, config.shape == "whole"
    in_squares = is_whole and not free
    sides = f"shorter side {size} px, longer side at most {longest(config)} px" if free else f"{size} x {size} px"
    learnt = choice.learnt if choice else None
    network = ", ".join([config.architecture, *(f"{name}={value}" for name, value in config.kwargs.items())])
    start = (config.resize - config.size) // 2
    known = published(config.architecture) if "." in config.architecture else None  # a tag names the weights
    snippets = "\n".join(f"## {target.LIBRARY}\n\n{target.SNIPPET}" for target in TARGETS)
    return Template(CARD.read_text(encoding="utf-8").replace("$snippets\n", f"{snippets}\n")).substitute(
        license=known.license if known and known.license else "unknown",
        base=f"base_model: {known.hf_hub_id}\n" if known and known.hf_hub_id else "",
        name=plain(choice.name) if choice else f"A model of {plain(config.architecture)}",
        dim=model.dim,
        architecture=network + (f"; the last {config.blocks} blocks side by side" if config.blocks > 1 else ""),
        input=f"{sides}, RGB, {kind(uint8)}; normalised inside"
        + (f", scaled to {config.side} px inside" if config.scaled else "")
        + ("; for a long image, several squares along it, whose embeddings are averaged" if in_squares else ""),
        adaptors=", ".join(config.adaptors.names) + f" ({config.adaptors.fusion})" if config.adaptors else "none",
        cost=f"{sum(parameter.numel() for parameter in model.parameters()):,} parameters"
        + (", two passes: the image and its mirror image" if config.mirrored else ""),
        digest=about.digest,
        mean=mean,
        torch=torch.__version__,
        batches=", ".join(map(str, BATCHES)),
        files="\n".join(f"| `{target.FILE}` | {target.ABOUT} |" for target in TARGETS),
        differences=", ".join(f"{target.LIBRARY} {differences[target.FILE]:.1e}" for target in TARGETS),
        data=f"Learnt from {counted(learnt.images, 'image')} of {', '.join(map(plain, learnt.tasks))}, without labels."
        if learnt
        else UNKNOWN,
        scores=scored(about.scores) or UNKNOWN,
        why="\n".join(f"- {plain(line)}" for line in choice.why) if choice else UNKNOWN,
        resize=config.resize,
        start=start,
        stop=config.resize - config.size - start,
        whole=WHOLE.format(resize=config.resize) if is_whole else "",
        given="1 x 3 x height x width" if free else f"{'squares' if in_squares else 1} x 3 x {size} x {size}",
        batch=SQUARES.format(size=size) if in_squares else "    return pixels[np.newaxis]",
        together="squares of one image each" if in_squares else "of one size: np.concatenate makes a quicker batch",
        one=".mean(0)" if in_squares else "[0]",
        unit=UNIT if in_squares else "",
        kind=kind(uint8),
        scale="" if uint8 else " / np.float32(255)",
    )


def read(file: Path, kind: Any) -> Any:
    """The content of a JSON file of this pydantic type; None where there is no such file."""
    if not file.exists():
        return None
    with reading(file, WHOLE_FOLDER):
        return TypeAdapter(kind).validate_json(file.read_text(encoding="utf-8"))


def plain(words: str) -> str:
    """Text on one line, escaped for Markdown and HTML."""
    return re.sub(r"([\\`*_\[\]<>|#~&])", r"\\\1", visible(" ".join(words.split())).replace("\\\\", "\\"))


def kind(uint8: bool) -> str:
    return "uint8" if uint8 else "float32 in 0..1"


def scored(scores: Scores) -> str:
    """A line for each measure: the numbers of the models that have it."""
    values = {name: ", ".join(f"{row} {value:.1f}" for row, value in of.items()) for name, of in scores.items()}
    return "\n".join(plain(f"- {MEASURES.get(name, name)}: {shown}") for name, shown in values.items())
