"""The lists of params.yaml: what the stages are repeated for."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from stages.core.runner.schema import Name, Section
from stages.core.sources.names import KNOWN

# Each with the folder that DVC has to follow for it, beside those of its stage.
FUSIONS = {
    "average": "adaptor",
    "augmentation": "images",
    "neighbour": "knn_graph",
    "static": "knn_graph",
    "supervised": "images",
}
BASELINES = {"one_set": "features", "many_sets": "features", "tldr": "knn_graph"}


class Task(Section):
    source: Literal[KNOWN]
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
    values: dict[str, float | int] = Field(description="of the pooling, in place of those in gsp_folds.poolings")


class Lists(Section):
    """What params.yaml says before its sections: the items that stages are repeated for."""

    root: str
    seed: int = Field(ge=0, lt=2**31)
    tasks: dict[Name, Task] = Field(min_length=1)
    granularities: dict[Annotated[str, StringConstraints(pattern=r"^k[1-9][0-9]*$")], str] = Field(min_length=1)
    fusions: dict[Literal[tuple(FUSIONS)], str]
    baselines: dict[Literal[tuple(BASELINES)], str]
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
            ("fusions", self.fusions, FUSIONS),
            ("baselines", self.baselines, BASELINES),
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
