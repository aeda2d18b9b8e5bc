"""The records, benchmarks/claims/<paper>.yaml: what each paper claims, and the experiments that measure it."""

from collections.abc import Collection, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, ValidationError, model_validator

from benchmarks.claims import upstream
from benchmarks.claims.readers import READERS
from polygrain.config import compose
from polygrain.config.graph import items_of
from polygrain.config.schema import Section
from polygrain.store import imports

PAPERS = {"grappa": "Grappa", "gsp": "GSP", "tll": "TLL", "mpcl": "MPCL"}
Words = Annotated[tuple[str, ...], BeforeValidator(lambda value: value if isinstance(value, list) else [value])]
Sides = Annotated[tuple[str | float, ...], BeforeValidator(lambda value: value if isinstance(value, list) else [value])]


class Record(Section):
    model_config = ConfigDict(strict=False)

    @model_validator(mode="before")
    @classmethod
    def has_known_keys(cls, record: dict[str, Any]) -> dict[str, Any]:
        for key in record:
            require("key", key, cls.model_fields)
        return record


class Experiment(Record):
    """Runs of the graph up to `target`, or of a module of benchmarks; `values` go to the reader."""

    title: str
    profile: str | None = None
    target: Words = ()
    command: str | None = None
    reader: str
    seeds: tuple[int, ...] = (0, 1, 2)
    needs: tuple[str, ...] = ()
    fetch: str = ""
    cheap: bool = True
    without: tuple[str, ...] = ()
    values: dict[str, Any] | None = None

    def digests(self) -> dict[str, str]:
        """{stage: digest} of all that its numbers depend on."""
        if self.command:
            return upstream.command_digest(self.command.split()[0])
        return upstream.digests(values_of(self.profile), self.target)

    def check(self) -> None:
        """ValueError for a reader, module, profile or stage that is not there."""
        require("reader", self.reader, READERS)
        if self.command and imports.module(self.command.split()[0]) is None:
            raise ValueError(f"no module {self.command.split()[0]}")
        stages = {} if self.command else upstream.stages_of(values_of(self.profile))
        for stage, at, item in (target.partition("@") for target in self.target):
            require("stage", stage, stages)
            if at:
                require(f"item of {stage}", item, items_of(stages[stage], values_of(self.profile)) or ())


class Line(Record):
    """Comparisons of one experiment's numbers with one verdict; `beside` names one more of the same data and seeds."""

    on: str
    beside: str | None = None
    better: Words
    worse: Sides
    of: Words = ("mean",)
    lower: bool = False
    at_least: float = 0
    pairs: bool = False

    @property
    def experiments(self) -> list[str]:
        return [self.on, *([self.beside] if self.beside else [])]

    def comparisons(self) -> Iterator[tuple[str, str | float, str]]:
        """Better side, worse side and quantity of each; with `pairs` the lists are read side by side."""
        if not self.pairs:
            return product(self.better, self.worse, self.of)
        longest = max(map(len, (self.better, self.worse, self.of)))
        lists = (it * longest if len(it) == 1 else it for it in (self.better, self.worse, self.of))
        return zip(*lists, strict=True)


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


def read(folder: Path) -> tuple[dict[str, Experiment], dict[str, Claim]]:
    """All experiments by name, and all claims as paper/name; ValueError says what is unknown."""
    experiments: dict[str, Experiment] = {}
    claims: dict[str, Claim] = {}
    for name in PAPERS:
        try:
            paper = Paper.model_validate(compose.read_params(folder / f"{name}.yaml"))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise ValueError(f"{name}.yaml: {place} is {first['input']!r}: {first['msg']}") from error
        experiments |= paper.experiments
        claims |= {f"{name}/{claim.name}": claim for claim in paper.claims}
    for name, experiment in experiments.items():
        try:
            experiment.check()
        except ValueError as error:
            raise ValueError(f"experiment {name}: {error}") from error
    for title in (title for claim in claims.values() for line in claim.measured for title in line.experiments):
        require("experiment", title, experiments)
    return experiments, claims
