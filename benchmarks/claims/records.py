"""The records, benchmarks/claims/<paper>.yaml: what each paper claims, and the experiments that measure it."""

from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, ValidationError

from benchmarks.claims import upstream
from benchmarks.claims.readers import READERS
from polygrain.config import compose
from polygrain.config.graph import items_of
from polygrain.config.schema import Section
from polygrain.store import imports

PAPERS = {"grappa": "Grappa", "gsp": "GSP", "tll": "TLL", "mpcl": "MPCL"}


class Record(Section):
    model_config = ConfigDict(strict=False)


class Experiment(Record):
    """Runs of the graph up to `target`, or of a module of benchmarks; `values` go to the reader."""

    title: str
    profile: str | None = None
    target: str | tuple[str, ...] = ()
    command: str | None = None
    reader: str
    seeds: tuple[int, ...] = (0, 1, 2)
    needs: tuple[str, ...] = ()
    fetch: str = ""
    cheap: bool = True
    without: tuple[str, ...] = ()
    values: dict[str, Any] | None = None

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.target,) if isinstance(self.target, str) else self.target

    def digests(self) -> dict[str, str]:
        """{stage: digest} of all that its numbers depend on."""
        if self.command:
            return upstream.command_digest(self.command.split()[0])
        return upstream.digests(values_of(self.profile), self.targets)


class Line(Record):
    """Comparisons of one experiment's numbers with one verdict."""

    on: str
    better: str | tuple[str, ...]
    worse: str | float | tuple[str, ...]
    of: str | tuple[str, ...] = "mean"
    lower: bool = False
    at_least: float = 0
    pairs: bool = False

    def comparisons(self) -> Iterator[tuple[str, Any, str]]:
        """Better side, worse side and quantity of each."""
        better, worse, of = (it if isinstance(it, tuple) else (it,) for it in (self.better, self.worse, self.of))
        sides = zip(better, worse, strict=True) if self.pairs else ((a, b) for a in better for b in worse)
        return ((str(a), b, str(quantity)) for a, b in sides for quantity in of)


class Claim(Record):
    name: str
    where: str
    claim: str
    paper: str
    quantity: str
    measured: tuple[Line, ...] = ()
    untested: str | None = None
    note: str = ""


class Paper(Record):
    experiments: dict[str, Experiment]
    claims: tuple[Claim, ...]


@cache
def values_of(profile: str | None) -> dict[str, Any]:
    """The composed values of a profile, or of the default graph."""
    if profile is None:
        return compose.read_params(imports.ROOT / "params.yaml")
    require("profile", profile, compose.listed(imports.ROOT / "profiles"))
    return compose.compose(imports.ROOT / "profiles" / profile)


def require(kind: str, value: str, known: Collection[str]) -> None:
    if value not in known:
        raise ValueError(f"unknown {kind} {value!r}; known: {', '.join(known)}")


def check(name: str, experiment: Experiment) -> None:
    """ValueError for a reader, module, profile or stage that is not there."""
    require(f"reader of {name}", experiment.reader, READERS)
    if experiment.command:
        if imports.module(experiment.command.split()[0]) is None:
            raise ValueError(f"{name}: no module {experiment.command.split()[0]}")
        return
    values = values_of(experiment.profile)
    stages = upstream.stages_of(values)
    for stage, at, item in (target.partition("@") for target in experiment.targets):
        require(f"stage of {name}", stage, stages)
        if at:
            require(f"item of {stage} in {name}", item, items_of(stages[stage], values) or ())


def read(folder: Path = Path(__file__).parent) -> tuple[dict[str, Experiment], dict[str, Claim]]:
    """All experiments by name, and all claims as paper/name; ValueError says what is unknown."""
    experiments: dict[str, Experiment] = {}
    claims: dict[str, Claim] = {}
    for name in PAPERS:
        file = folder / f"{name}.yaml"
        try:
            paper = Paper.model_validate(compose.read_params(file))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise ValueError(f"{file}: {place} is {first['input']!r}: {first['msg']}") from error
        for title, experiment in paper.experiments.items():
            check(title, experiment)
        experiments |= paper.experiments
        claims |= {f"{name}/{claim.name}": claim for claim in paper.claims}
    for line in (line for claim in claims.values() for line in claim.measured):
        require("experiment", line.on, experiments)
    return experiments, claims
