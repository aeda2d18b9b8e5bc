"""The card of an exported model, in Markdown: its properties, its scores, and how to load it without this project."""

import re
from pathlib import Path
from string import Template
from typing import Annotated, Any, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from polygrain.app.export.agreement import BATCHES
from polygrain.app.export.program import ONNX, TORCH
from polygrain.encoder.config import WHOLE_FOLDER
from polygrain.encoder.digest import digest
from polygrain.encoder.model import Model
from polygrain.encoder.origin import published
from polygrain.report.visible import visible
from polygrain.retrieval.formulas import NAMES
from polygrain.store.collection import read_table
from polygrain.store.reading import reading

CARD = Path(__file__).with_name("card.md")
UNKNOWN = "Not known: the model's folder has no record of it."
Line = Annotated[str, Field(max_length=2000)]
Metrics = Annotated[dict[str, Annotated[float, Field(ge=0)]], Field(max_length=20)]
Scores = Annotated[dict[Line, Metrics], Field(max_length=1000)]


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


class Smoothed(BaseModel):
    """The part of a task's entry in smoothing.json that says whether it was smoothed: not at strength 0."""

    strength: float


Smoothings = Annotated[dict[Line, Smoothed], Field(max_length=1000)]


class About(NamedTuple):
    """Facts from a model's folder beside its weights; a bare model has no choice and no scores."""

    digest: str
    choice: Choice | None
    tables: list[tuple[str, Scores, Scores]]
    """what was measured, in words, of the encoder and of the model; what the collection gives stands first"""


def read_about(folder: Path) -> About:
    """Read choice.json in the folder, and the evaluation beside it; ValueError names a damaged file."""
    choice = read(folder / "choice.json", Choice)
    evaluation = folder.resolve().parent / "evaluation"
    tables = []
    for words, before, after in measured(trains_on_all(evaluation.with_name("images"))) if choice else ():
        encoder, chosen = read(evaluation / "encoder" / before, Scores), read(evaluation / "chosen" / after, Scores)
        if after == "smoothed.json":  # without a record of strengths all were smoothed
            plain = read(evaluation / "chosen/smoothing.json", Smoothings) or {}
            chosen = {
                task: scores for task, scores in (chosen or {}).items() if task not in plain or plain[task].strength
            }
        tables += [(words, encoder or {}, chosen)] if chosen else []
    return About(digest(folder), choice, tables)


def trains_on_all(images: Path) -> bool | None:
    """Whether images of every class trained (the protocol `collection`); None where no table of them is here."""
    tables = [read_table(file.parent) for file in sorted(images.glob("*/table.parquet"))]
    trained = [
        trains and split != "train"
        for table in tables
        for trains, split in zip(table["trains"].to_pylist(), table["split"].to_pylist(), strict=True)
    ]
    return any(trained) if tables else None


def measured(on_all: bool | None) -> list[tuple[str, str, str]]:
    """Each evaluation in words, and the files of the encoder and of the model."""
    learnt = {
        True: "their classes were learnt from, without labels",
        False: "no image of their classes was learnt from",
    }
    half = {True: "", False: ", and half of its classes were learnt from, without labels"}.get(on_all, "")
    among = f": {learnt[on_all]}" if on_all is not None else ""
    return [
        (f"New pictures search the collection{half}", "collection.json", "collection.json"),
        ("The same with the collection smoothed by its neighbours", "collection.json", "smoothed.json"),
        (f"Images of the second half of the classes search each other{among}", "metrics.json", "metrics.json"),
    ]


def text(model: Model, about: About, differences: dict[str, float], uint8: bool, mean: str = "none is taken") -> str:
    """The card of a model; `differences[file]` is the largest difference of an exported program to the model."""
    config, choice = model.config, about.choice
    learnt = choice.learnt if choice else None
    network = ", ".join([config.architecture, *(f"{name}={value}" for name, value in config.kwargs.items())])
    start = (config.resize - config.size) // 2
    known = published(config.architecture) if "." in config.architecture else None  # a tag names the weights
    return Template(CARD.read_text(encoding="utf-8")).substitute(
        license=known.license if known and known.license else "unknown",
        base=f"base_model: {known.hf_hub_id}\n" if known and known.hf_hub_id else "",
        name=plain(choice.name) if choice else f"A model of {plain(config.architecture)}",
        dim=model.dim,
        architecture=network + (f"; the last {config.blocks} blocks side by side" if config.blocks > 1 else ""),
        input=f"{config.size} x {config.size} px, RGB, {kind(uint8)}; normalised inside"
        + (f", scaled to {config.side} px inside" if config.scaled else ""),
        adaptors=", ".join(config.adaptors.names) + f" ({config.adaptors.fusion})" if config.adaptors else "none",
        cost=f"{sum(parameter.numel() for parameter in model.parameters()):,} parameters"
        + (", two passes: the image and its mirror image" if config.mirrored else ""),
        digest=about.digest,
        mean=mean,
        torch=torch.__version__,
        batches=", ".join(map(str, BATCHES)),
        torch_difference=f"{differences[TORCH]:.1e}",
        onnx_difference=f"{differences[ONNX]:.1e}",
        data=f"Adapted to {learnt.images:,} images of {', '.join(map(plain, learnt.tasks))}, without their labels."
        if learnt
        else UNKNOWN,
        scores="\n\n".join(table(*one) for one in about.tables)
        or "None: no task had labelled test images, or nothing was evaluated.",
        why="\n".join(f"- {plain(line)}" for line in choice.why) if choice else UNKNOWN,
        size=config.size,
        resize=config.resize,
        start=start,
        stop=start + config.size,
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


def table(words: str, encoder: Scores, chosen: Scores) -> str:
    """R-Precision, MAP@R and Recall@1 on each task, percent; in brackets the encoder's."""
    head = "| task | R-Precision | MAP@R | Recall@1 | queries |\n|---|---:|---:|---:|---:|"
    lines = []
    for task, metrics in chosen.items():
        cells = []
        for name in NAMES:
            before = f" ({100 * encoder[task][name]:.1f})" if name in encoder.get(task, {}) else ""
            cells.append(f"{100 * metrics[name]:.1f}{before}" if name in metrics else "–")
        lines.append(f"| {plain(task)} | {' | '.join(cells)} | {metrics.get('queries', 0):,.0f} |")
    return "\n".join([f"{words}. Percent; in brackets the encoder as it is.", "", head, *lines])
