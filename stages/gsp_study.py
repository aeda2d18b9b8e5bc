"""A small experiment of GSP's paper in one process: `tokens` (Fig. 3a) or `toy` (Fig. 2).

Writes  index.html, table.md    the page
        metrics.json            tokens: {pooling: {map_at_r: percent}} on test bags; toy: {mu: {object: percent}}
        history.csv             tokens: pooling, step, loss, map_at_r
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Int64
from pydantic import Field
from torch import Tensor

from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.gsp.folds import early_stopping
from polygrain.gsp.poolings.prototypes import start_prototypes
from polygrain.gsp.report import contents
from polygrain.gsp.report.geometry import geometry
from polygrain.gsp.studies import colours
from polygrain.gsp.studies.tokens import Bags, World, draw, map_at_r
from polygrain.report import page
from polygrain.runner import command, outputs
from polygrain.training import checkpoint

SHOWN_SIDE = 160  # of the toy map's pictures, px


class Tokens(schema.Section):
    """Poolings over bags of tokens, half of which say nothing (Fig. 3a)."""

    world: World
    dim: schema.Width = Field(description="numbers of a token's vector")
    per_class: int = Field(ge=2, le=10_000, description="bags of each class in a batch")
    unseen: int = Field(ge=2, le=100_000, description="bags of each class to validate on, and as many to test on")
    margin: float = Field(gt=0, le=100, description="distance that pairs of different classes should keep")
    prototypes: schema.Width = Field(description="trained prototypes of gsp")
    mu: float = Field(gt=0, le=1, description="share of a bag that gsp keeps")
    epsilon: schema.Factor = Field(description="sharpness of the choice")
    zero_shot: float = Field(gt=0, lt=1, description="share of the zero-shot loss in gsp-zs")
    learning_rate: schema.Rate = Field(description="of Adam")
    stopping: early_stopping.Stopping = Field(description="of each pooling")


class Toy(schema.Section):
    """A drawn map of colours, and the places that a selection keeps (Fig. 2)."""

    mu: list[schema.Share] = Field(
        min_length=1, max_length=20, description="shares of the map that are kept, a picture each"
    )
    epsilon: schema.Factor = Field(description="sharpness of the choice")


class Params(schema.Section):
    tokens: Tokens
    toy: Toy


class Learned(NamedTuple):
    """A pooling in its best state on validation bags: MAP@R and embeddings of the test bags, and its history."""

    score: float
    vectors: Float32[np.ndarray, "bag dim"]
    labels: Int64[np.ndarray, " bag"]
    history: early_stopping.History


def learn(params: Tokens, how: str, seed: int, work: Path) -> Learned:
    """Trains the pooling `gap`, `gsp` or `gsp-zs`."""
    values = {} if how == "gap" else {"prototypes": params.prototypes, "mu": params.mu, "epsilon": params.epsilon}
    share = params.zero_shot if how == "gsp-zs" else 0.0
    torch.manual_seed(seed)  # the layers draw their start from the global generator
    bags = Bags(params.world, params.dim, how.removesuffix("-zs"), values, params.margin, share)
    if values:
        start_prototypes(bags.pool, bags.tokens.detach(), seed)
    labels = torch.arange(params.world.classes)
    unseen, batch = labels.repeat_interleave(params.unseen), labels.repeat_interleave(params.per_class)
    watched, tested = (draw(params.world, unseen, torch.Generator().manual_seed(1000 + i)) for i in range(2))

    def step(number: int, generator: torch.Generator) -> Tensor:
        bags.clamp()
        return bags.loss_of(draw(params.world, batch, generator), batch)

    @torch.no_grad()
    def embed(drawn: Tensor) -> Tensor:
        bags.clamp()
        return bags(drawn).vector

    def validate() -> float:
        return map_at_r(embed(watched), unseen)

    optimizer = torch.optim.Adam(bags.parameters(), params.learning_rate)
    history = early_stopping.fit(bags, optimizer, params.stopping, step, validate, seed, work)
    vectors = embed(tested)
    return Learned(map_at_r(vectors, unseen), vectors.numpy(), unseen.numpy(), history)


def study_tokens(params: Tokens, seed: int, work: Path) -> tuple[dict, dict[str, dict[str, float]], list[str]]:
    """The page's content, metrics in percent, and the history's lines."""
    learned = {how: learn(params, how, seed, work / f"tokens-{how}") for how in ("gap", "gsp", "gsp-zs")}
    metrics = {how: {"test": {"map_at_r": {"mean": run.score, "std": 0.0}}} for how, run in learned.items()}
    columns, rows = contents.table(metrics, [("test", "map_at_r", "MAP@R")])
    curves = {how: [(float(row["step"]), row["score"]) for row in run.history] for how, run in learned.items()}
    shown = [geometry(f"{how}, test bags", run.vectors, run.labels, contents.STYLES) for how, run in learned.items()]
    world = params.world
    note = (
        f"{world.classes} classes of {world.own} tokens each and {world.shared} tokens of all classes; bags of "
        f"{world.bag} tokens, of which {100 * world.mean_share:.0f} % on average are of the class. MAP@R in percent, "
        "by distance, on bags used neither to train nor to choose the state."
    )
    content = {
        "heading": "Half of every bag says nothing about its class",
        "sentences": contents.gains(metrics, [("gsp", "gap"), ("gsp-zs", "gap")], "test"),
        "columns": columns,
        "rows": rows,
        "note": note,
        "charts": contents.curves(curves, "Validation bags") + shown,
        "looks": None,
    }
    lines = [f"{how},{r['step']},{r['loss']:.6g},{r['score']:.6g}" for how in learned for r in learned[how].history]
    return content, {how: {"map_at_r": round(100 * run.score, 4)} for how, run in learned.items()}, lines


def study_toy(params: Toy) -> tuple[dict, dict, list[str]]:
    """The weights of a drawn map for given prototypes."""
    pixels, weights = colours.weigh(params.mu, params.epsilon)
    titles = {"object": "weight on red and blue, %", "reached": "red and blue places reached, %"}
    shares = {name: {"object": colours.on_object(p), "reached": colours.reached(p)} for name, p in weights.items()}
    metrics = {
        name: {"map": {key: {"mean": share, "std": 0.0} for key, share in found.items()}}
        for name, found in shares.items()
    }
    columns, rows = contents.table(metrics, [("map", key, title) for key, title in titles.items()])
    tensors = {"pixels": pixels[None]} | {f"weights/{name}": p[None] for name, p in weights.items()}
    content = {
        "heading": "A map of colours, two prototypes",
        "sentences": [],
        "columns": columns,
        "rows": rows,
        "note": "The features are colours, the prototypes red and blue, half of the map. mu is the share that is kept: "
        "P1 without smoothing, P2 with it. Reached are places with half of the weight of average pooling, or more: "
        "where mu is too small, P1 misses the rest of the object, P2 does not.",
        "charts": [],
        "looks": contents.pictures(tensors, list(weights), ["map"], SHOWN_SIDE),
    }
    percent = {name: {key: round(100 * share, 4) for key, share in found.items()} for name, found in shares.items()}
    return content, percent, []


def main(output: Path, *, study: str, params: Params, lists: Lists, seed: int) -> str:
    kind = lists.gsp_studies[study]
    work = checkpoint.work_folder("gsp_study", study, [kind, params, seed], [])
    content, metrics, lines = study_toy(params.toy) if kind == "toy" else study_tokens(params.tokens, seed, work)
    content |= {"title": study, "published": [], "sweeps": [], "transfer": {}, "spreads": [], "histograms": []}
    with outputs.folder(output) as folder:
        page.write(folder, "gsp/report/gsp", content, metrics)
        (folder / "history.csv").write_text("\n".join(["pooling,step,loss,map_at_r", *lines]) + "\n", encoding="utf-8")
    return ", ".join(f"{name} {next(iter(values.values())):.1f} %" for name, values in metrics.items())


if __name__ == "__main__":
    command.run(main, Params)
