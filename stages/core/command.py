"""A stage's `main` as a command line: paths come from dvc.yaml, values from params.yaml, nothing has a default.

It computes nothing, so it is the one file that stages need not list in their `deps`.
"""

import argparse
import ctypes
import hashlib
import importlib
import inspect
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from ruamel.yaml import YAML, YAMLError

log = logging.getLogger("stages")
STAGES = Path(__file__).parent.parent


class Section(BaseModel):
    """A section of params.yaml: unknown keys are refused, types are not bent, and nothing has a default."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$")]


EMBEDDED = ("digits", "glyphs", "patches")
DATASETS = ("aircraft", "cars", "cub", "flowers", "food101", "products", "inshop", "dtd", "eurosat", "pets")
DATASETS += ("cifar10", "cifar100")


class Task(Section):
    source: Literal[(*EMBEDDED, "folder", "splits", *DATASETS)]
    path: str
    # The one value with a default, for few tasks have it: the task is evaluated and never trained on.
    unseen: bool = False


Part = Literal["train", "all"]


class Pretraining(Section):
    """One MPCL run: what sets it apart from the others of `mpcl`."""

    framework: Literal["moco_v2", "moco_v3", "barlow_twins"]
    heads: int = Field(ge=1, le=64)
    projectors: Literal["shared", "same", "different"] = Field(description="one hidden layer for all heads, or its own")
    variant: Literal["plain", "dropout", "mixed", "orthogonal"] = Field(description="Table II's alternatives")
    contrast: float = Field(ge=0, description="lambda of the projector contrastive regularisation")
    balance: Literal["none", "literal", "neutral"] = Field(description="projector training balance, and its scale")
    start: Literal["random", "folder"]
    path: str = Field(description="the folder of an encoder; for a random start the lock file that pins timm's version")


class Study(Section):
    """One study of visual analogies (`tll`)."""

    source: Literal["analogies", "folder"]
    path: str = Field(description="the folder of the pairs; for embedded pairs the lock file that pins their packages")
    listed: str | None = Field(
        description="a CSV in the folder that lists the pairs; null pairs left/ and right/ by name"
    )
    extractor: str
    weights: str = Field(description="a model folder, a safetensors file, or for published weights the lock file")


class SupervisedModel(Section):
    on: Name = Field(description="a task, or `all` of them")
    how: Literal["full", "one", "many"]


class Collage(Section):
    """Pictures of one task beside pictures of another; where both are one task, its listed classes are background."""

    targets: str
    backgrounds: str
    background_classes: list[str] = Field(description="empty: all classes of the backgrounds' task")
    copies: int = Field(ge=1, description="collages of each training target, with other backgrounds")


class Run(Section):
    """One configuration of metric learning: all its folds."""

    images: str = Field(description="folder of its images: images/<task> or gsp_collage/<collages>")
    loss: str
    pooling: str
    zero_shot: float = Field(ge=0, lt=1, description="share of the zero-shot loss")
    values: dict[str, float | int] = Field(description="of the pooling, in place of those in gsp_fold.poolings")


class Lists(Section):
    """What params.yaml says before its sections: the items that stages are repeated for."""

    root: str
    seed: int = Field(ge=0, lt=2**31)
    tasks: dict[Name, Task] = Field(min_length=1)
    granularities: dict[Annotated[str, StringConstraints(pattern=r"^k[1-9][0-9]*$")], str] = Field(min_length=1)
    fusions: dict[Literal["average", "augmentation", "neighbour", "static", "supervised"], str]
    baselines: dict[Literal["one_set", "many_sets", "tldr"], str]
    supervised_models: dict[Name, SupervisedModel]
    models: dict[Name, str] = Field(min_length=1)
    mpcl: dict[Name, Pretraining]
    tll: dict[Name, Study]
    mrt: dict[Literal["tables"], str]
    gsp_collages: dict[Name, Collage]
    gsp_runs: dict[Name, Run]
    gsp: dict[Name, str]
    gsp_studies: dict[Name, Literal["tokens", "toy"]]

    @model_validator(mode="after")
    def gsp_matches(self) -> "Lists":
        """Collages are of known tasks, runs and pages of known images, and each page has something to show."""
        folders = {f"images/{task}" for task in self.tasks} | {f"gsp_collage/{name}" for name in self.gsp_collages}
        named = {f"gsp_runs.{name}.images": run.images for name, run in self.gsp_runs.items()}
        named |= {f"gsp.{name}": folder for name, folder in self.gsp.items()}
        for collages, spec in self.gsp_collages.items():
            named |= {
                f"gsp_collages.{collages}.{key}": f"images/{getattr(spec, key)}" for key in ("targets", "backgrounds")
            }
        for key, folder in named.items():
            if folder not in folders:
                raise ValueError(f"{key} is {folder!r}; known here: {', '.join(sorted(folders))}")
        if idle := set(self.gsp.values()) - {run.images for run in self.gsp_runs.values()}:
            raise ValueError(f"gsp lists {sorted(idle)[0]!r}, on which no run of gsp_runs trains")
        return self

    @model_validator(mode="after")
    def folders_match(self) -> "Lists":
        """The lists hold the folders DVC follows: each has one right value."""
        pairs = {"average": "adaptor", "augmentation": "images", "neighbour": "knn_graph"}
        pairs |= {"static": "knn_graph", "supervised": "images"}
        random = {"one_set": "features", "many_sets": "features", "tldr": "knn_graph"}
        adaptors = {name: f"adaptor/{name}" for name in self.granularities}
        models = {"pixels": "images", "encoder": "encoder", **adaptors}
        for stage, names in (
            ("fusion", self.fusions),
            ("baseline", self.baselines),
            ("supervised_model", self.supervised_models),
        ):
            models |= {name: f"{stage}/{name}" for name in names}
        for title, met, allowed in (
            ("granularities", self.granularities, adaptors),
            ("fusions", self.fusions, pairs),
            ("baselines", self.baselines, random),
            ("models", self.models, models),
            ("mrt", self.mrt, {"tables": "evaluation"}),
        ):
            for name, folder in met.items():
                if allowed.get(name) != folder:
                    known = ", ".join(f"{key}: {value}" for key, value in allowed.items())
                    raise ValueError(f"{title}.{name} is {folder!r}; known here: {known}")
        trained = [name for name, task in self.tasks.items() if not task.unseen]
        for name, item in self.supervised_models.items():
            if item.on not in ("all", *trained):
                raise ValueError(f"supervised_models.{name}.on is {item.on!r}; known here: all, {', '.join(trained)}")
        if not trained:
            raise ValueError("tasks are all unseen; one at least must train")
        return self

    @property
    def sizes(self) -> dict[str, int]:
        """The number of clusters of each granularity, in ascending order."""
        return dict(sorted(((name, int(name[1:])) for name in self.granularities), key=lambda item: item[1]))


def complaints(error: ValidationError, where: str) -> list[str]:
    """One line per wrong key: its full name, the value met, what is allowed."""
    lines = []
    for item in error.errors():
        key = ".".join([where, *map(str, item["loc"])] if where else map(str, item["loc"]))
        met = "" if item["type"] in ("missing", "extra_forbidden") or not item["loc"] else f" (met {item['input']!r})"
        message = {"missing": "is missing", "extra_forbidden": "is not a known key"}.get(item["type"], item["msg"])
        lines.append(f"  {key or 'lists'}: {message}{met}")
    return lines


def read_params(file: Path) -> dict:
    try:
        values = YAML(typ="safe").load(file.read_text(encoding="utf-8"))
    except (OSError, YAMLError) as error:
        raise ValueError(f"{file} cannot be read as YAML: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{file} holds no sections")
    return values


def paths(values: dict, prefix: str = "") -> list[tuple[str, str]]:
    """Every value named `path`, with its full key."""
    found = []
    for key, value in values.items():
        if isinstance(value, dict):
            found += paths(value, f"{prefix}{key}.")
        elif key == "path" and isinstance(value, str):
            found.append((f"{prefix}{key}", value))
    return found


def check(file: Path) -> None:
    """Compares the whole file with what every stage declares; ValueError lists each wrong key with what is allowed."""
    values = read_params(file)
    stages = sorted(path.stem for path in STAGES.glob("*.py") if path.stem != "__init__")
    wrong = []
    try:
        Lists(**{key: value for key, value in values.items() if key not in stages})
    except ValidationError as error:
        wrong += complaints(error, "")
    for stage in stages:
        params = getattr(importlib.import_module(f"stages.{stage}"), "Params", None)
        if params is None:
            continue
        if stage not in values and is_off(stage, values):
            continue
        try:
            params.model_validate(values.get(stage, {}))
        except ValidationError as error:
            wrong += complaints(error, stage)
    # What a stage makes (a pretrained encoder, say) need not be there yet.
    given = [(key, path) for key, path in paths(values) if not path.startswith(tuple(f"data/{s}/" for s in stages))]
    wrong += [f"  {key}: {path} does not exist" for key, path in given if not (file.parent / path).exists()]
    if wrong:
        raise ValueError("\n".join([f"{file} has {len(wrong)} wrong value(s):", *wrong]))


def is_off(stage: str, values: dict) -> bool:
    """Whether the stage's branch (`gsp` of `gsp_fold`) has lists of its own and all are empty: no section is needed."""
    branch = stage.split("_")[0]
    own = [values.get(name) for name in Lists.model_fields if name.split("_")[0] == branch]
    return bool(own) and not any(own)


def check_once(file: Path) -> None:
    """`check`, skipped when this very file passed before under these very sources (a stage start should stay quick)."""
    sources = sorted(STAGES.glob("*.py"))
    state = hashlib.sha256(b"".join(path.read_bytes() for path in [file, Path(__file__), *sources])).hexdigest()
    stamp = Path(".work/checked") / state[:16]
    if not stamp.exists():
        check(file)
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.touch()


def end_with_parent() -> None:
    """Asks the kernel to end this process when DVC dies: an orphan would write beside its successor."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def run(main: Callable[..., str], params: type[Section] | None) -> None:
    """Runs `main` with its paths and items from the command line and its `params`, `lists`, `seed` from ./params.yaml.

    `main` returns the line that is logged at the end: what came out, with counts.
    """
    end_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    parser = argparse.ArgumentParser(description=inspect.getdoc(sys.modules[main.__module__]))
    for name, parameter in inspect.signature(main).parameters.items():
        if parameter.kind is not parameter.KEYWORD_ONLY:
            parser.add_argument(name, type=Path)
        elif name not in ("params", "lists", "seed"):
            parser.add_argument(f"--{name.replace('_', '-')}", type=str, required=True)
    arguments = vars(parser.parse_args())
    stage = Path(inspect.getfile(main)).stem
    start = time.monotonic()
    try:
        file = Path("params.yaml")
        check_once(file)
        values = read_params(file)
        lists = Lists(**{key: values[key] for key in Lists.model_fields})
        offered = {"lists": lists, "seed": lists.seed}
        if params is not None:
            offered["params"] = params.model_validate(values[stage])
        wanted = inspect.signature(main).parameters
        items = [value for value in arguments.values() if isinstance(value, str)]
        log.info("%s: from %s", "@".join([stage, *items[:1]]), ", ".join(map(str, list_inputs(arguments))))
        result = main(**arguments, **{name: value for name, value in offered.items() if name in wanted})
        log.info("%s: %s (%.1f s)", "@".join([stage, *items[:1]]), result, time.monotonic() - start)
    except (ValueError, OSError) as error:
        if os.environ.get("POLYGRAIN_TRACEBACK"):
            raise
        # A wrong input is the user's to mend: they need the sentence, not our call stack.
        sys.exit(f"error: {re.sub(r'^Value error, ', '', str(error))}")


def list_inputs(arguments: dict[str, Path | str]) -> list[Path]:
    return [value for name, value in arguments.items() if isinstance(value, Path) and name != "output"]


if __name__ == "__main__":
    try:
        check(Path(sys.argv[1] if len(sys.argv) > 1 else "params.yaml"))
    except ValueError as error:
        sys.exit(f"error: {error}")
