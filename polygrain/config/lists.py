"""The lists of params.yaml: the items that stages are repeated for."""

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from polygrain.config.items.grappa import SupervisedModel
from polygrain.config.items.gsp import Classifier, Collage, Run, Training, trainings
from polygrain.config.items.mpcl import Detection, Pretraining
from polygrain.config.items.tll import Study
from polygrain.config.schema import Name, Section, Text
from polygrain.report.rows import ROWS, of_stage
from polygrain.sources.kinds import KNOWN, described

# Each with the folder that DVC has to follow for it, beside those of its stage.
FUSIONS, BASELINES = of_stage("fusion"), of_stage("baseline")

# Models as profiles of before named them.
RENAMED = {"chosen": "recommended", "untrained": "without_training"}

# What a profile with granularities of its own trains, if it does not say so.
ALL = "all"


class Task(Section):
    """One set of images with classes of its own."""

    source: Literal[KNOWN] = Field(description=described())  # type: ignore[valid-type]
    # The values with a default, for few tasks have them.
    files: Text = Field("*", description="of tars, parquet and remote: those whose names have this pattern")
    unseen: bool = Field(False, description="evaluated and never trained on")


Granularity = Annotated[str, StringConstraints(pattern=r"^(k|size)[1-9][0-9]{0,8}$")]


class Lists(Section):
    """The lists at the top of params.yaml: the items that stages are repeated for."""

    root: Annotated[str, StringConstraints(pattern=r"^(\.|\.\.(/\.\.)*)$")] = Field(
        description="where stages/ lies, seen from params.yaml"
    )
    versions: Text = Field(description="versions.yaml, seen from params.yaml: the libraries that stages depend on")
    seed: int = Field(ge=0, lt=2**31, description="of everything that is drawn, except the images of embedded tasks")
    tasks: dict[Name, Task] = Field(min_length=1, description="one retrieval task each")
    paths: dict[Name, Text] = Field(
        description="of each task's images, for embedded ones versions.yaml; in a profile: tasks.<name>.path"
    )
    granularities: dict[Granularity, str] = Field(
        description="of pseudo-labels: k64 has 64 clusters, size4 has clusters of 4 images (k64: pseudo_labels/k64)"
    )
    adaptors: dict[Granularity, str] = Field(
        description="granularities on which a network trains, one adaptor set each (k64: adaptor/k64)"
    )
    fusions: dict[Literal[tuple(FUSIONS)], str] = Field(  # type: ignore[valid-type]
        description="ways to join adaptor sets, each with the folder of its pairs (neighbour: refreshed_graph)"
    )
    baselines: dict[Literal[tuple(BASELINES)], str] = Field(  # type: ignore[valid-type]
        description="simpler methods to compare with, each with the folder it learns from (one_set: features)"
    )
    supervised_models: dict[Name, SupervisedModel] = Field(description="models that learn from true labels")
    models: dict[Name, str] = Field(description="the rows of the results table: the folder of each model")
    mpcl: dict[Name, Pretraining] = Field(description="pretraining runs; {} leaves the branch out")
    mpcl_detections: dict[Name, Detection] = Field(description="detectors over pretrained encoders; {} leaves them out")
    tll: dict[Name, Study] = Field(description="studies of visual analogies; {} leaves the branch out")
    mrt: list[Literal["tables"]] = Field(description="[tables]: the benchmark's tables beside the published ones")
    gsp_collages: dict[Name, Collage] = Field(description="pictures of one task beside three of another")
    gsp_runs: dict[Name, Run] = Field(description="metric learning: the data, loss and pooling of each run")
    gsp_trainings: dict[Name, Training] = Field(
        description="each fold of each run, from each seed; in a profile a number: the repeats of each fold"
    )
    gsp: dict[Name, str] = Field(description="a page each: the folder of images whose runs it shows")
    gsp_studies: dict[Name, Literal["tokens", "toy"]] = Field(description="small experiments of GSP's paper")
    gsp_classifiers: dict[Name, Classifier] = Field(
        description="classifiers of known classes with GSP or another pooling; {} leaves them out"
    )

    @model_validator(mode="after")
    def items_match(self) -> "Lists":
        """Whether all names that items use are known, each training has its own name, and a task trains."""
        trained = [name for name, task in self.tasks.items() if not task.unseen]
        for name in sorted(self.tasks.keys() ^ self.paths.keys()):
            raise ValueError(f"paths.{name} or tasks.{name} is missing: give both")
        if not trained:
            raise ValueError("tasks are all unseen; one at least must train")
        folders = [f"images/{task}" for task in self.tasks] + [f"gsp_collage/{name}" for name in self.gsp_collages]
        shown = [run.images for run in self.gsp_runs.values()]
        named: list[tuple[str, str | None, list[Any]]] = [
            *((f"gsp_runs.{name}.images", run.images, folders) for name, run in self.gsp_runs.items()),
            *((f"gsp_classifiers.{name}.images", one.images, folders) for name, one in self.gsp_classifiers.items()),
            *((f"gsp_collages.{name}.targets", one.targets, [*self.tasks]) for name, one in self.gsp_collages.items()),
            *((f"gsp_collages.{name}.backgrounds", one.backgrounds, [None, *self.tasks])
              for name, one in self.gsp_collages.items()),
            *((f"gsp_trainings.{name}.run", one.run, [*self.gsp_runs]) for name, one in self.gsp_trainings.items()),
            *((f"gsp.{name}", folder, shown) for name, folder in self.gsp.items()),
            *((f"mpcl_detections.{name}.run", one.run, [*self.mpcl]) for name, one in self.mpcl_detections.items()),
            *((f"supervised_models.{name}.on", one.on, ["all", *trained])
              for name, one in self.supervised_models.items()),
        ]  # fmt: skip
        for key, value, known in named:
            if value not in known:
                raise ValueError(f"{key} is {value!r}; known here: {', '.join(map(str, known)) or 'none'}")
        for name, training in self.gsp_trainings.items():
            own = f"{training.run}-{training.fold}-{training.repeat}", self.gsp_runs[training.run].images
            if (name, training.images) != own:
                raise ValueError(f"gsp_trainings.{name}, on {training.images}, must be {own[0]}, on {own[1]}")
        return self

    @model_validator(mode="after")
    def folders_match(self) -> "Lists":
        """Each item has the folder that DVC must follow for it."""
        for title, known in folders(self.model_dump()).items():
            for name, folder in getattr(self, title).items():
                if known.get(name) != folder:
                    allowed = ", ".join(f"{key}: {value}" for key, value in known.items())
                    raise ValueError(f"{title}.{name} is {folder!r}; known here: {allowed or 'none'}")
        return self

    def repeats_of(self, run: str) -> list[tuple[int, int]]:
        """The folds and repeats of a run of `gsp_runs`."""
        return sorted((item.fold, item.repeat) for item in self.gsp_trainings.values() if item.run == run)

    def clusters(self, images: int) -> dict[str, int]:
        """The number of clusters of each granularity, in ascending order, when `images` images are clustered."""
        known = {name: clusters_of(name, images) for name in self.granularities}
        return dict(sorted(known.items(), key=lambda item: item[1]))

    @property
    def trained(self) -> list[str]:
        """The granularities on which networks train, the coarsest first."""
        return sorted(self.adaptors, key=lambda name: clusters_of(name, 10**9))


def clusters_of(granularity: str, images: int) -> int:
    """The number of clusters of a granularity; one by size divides `images` by it, and has at least one cluster."""
    number = int(granularity.lstrip("ksize"))
    return number if granularity.startswith("k") else max(1, images // number)


def folders(values: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """For each list whose items have a folder: every item that it may have here, with that folder."""
    items = {name: names_in(values.get(name)) for name in Lists.model_fields}
    adaptors = {name: f"adaptor/{name}" for name in items["granularities"]}
    trained = {name: adaptors[name] for name in items["adaptors"] if name in adaptors}
    models = {row.name: row.folder for row in ROWS if row.folder and not row.follows} | trained
    for stage in ("fusion", "baseline", "supervised_model"):
        models |= {name: f"{stage}/{name}" for name in items[f"{stage}s"]}
    return {
        "granularities": {name: f"pseudo_labels/{name}" for name in adaptors},
        "adaptors": adaptors,
        "fusions": FUSIONS if trained else {},
        "baselines": BASELINES,
        "models": models,
    }


def names_in(value: object) -> list[str]:
    """The names of a list's items; none for another value, which is refused elsewhere."""
    return list(map(str, value)) if isinstance(value, list | dict) else []


def with_folders(values: dict[str, Any], inherited: Collection[str] = ()) -> dict[str, Any]:
    """The values with {item: folder} where a list of names stands, a model for each granularity, and the trainings.

    Of the models that are `inherited`, only those that are made here stay.
    """
    if isinstance(values.get("granularities"), list):
        names = [f"k{one}" if isinstance(one, int) else str(one) for one in values["granularities"]]
        values = values | {"granularities": {name: f"pseudo_labels/{name}" for name in names}}
    if values.get("adaptors") == ALL:
        values = values | {"adaptors": names_in(values.get("granularities"))}
    if "gsp_trainings" in values:
        values = values | {"gsp_trainings": trainings(values)}
    known = folders(values)
    given = [RENAMED.get(name, name) for name in names_in(values.get("models"))]
    models = [name for name in given if name in known["models"] or name not in inherited]
    values = values | {"models": [*names_in(values.get("adaptors")), *models]}
    for title, items in known.items():
        if isinstance(values.get(title), list):
            values = values | {title: {name: items.get(name, name) for name in values[title]}}
    return values


# The lists of the papers' branches: a profile has none of them that it does not list.
BRANCHES = tuple(name for name in Lists.model_fields if name.startswith(("gsp", "mpcl", "mrt", "tll")))


def divided(values: dict[str, Any]) -> dict[str, Any]:
    """The values with the paths of the tasks in a list of their own: of all stages `images` alone depends on it."""
    tasks = values.get("tasks")
    if not (isinstance(tasks, dict) and all(isinstance(task, dict) for task in tasks.values())):
        return values  # refused elsewhere
    own = {name: {key: value for key, value in task.items() if key != "path"} for name, task in tasks.items()}
    paths = {name: task["path"] for name, task in tasks.items() if "path" in task}
    return values | {"tasks": own, "paths": paths | (values.get("paths") or {})}


def is_path(section: str, key: str) -> bool:
    """Whether a value of params.yaml with this key is a path: a study of `tll` names its weights by one, too."""
    return key == "path" or section == "paths" or (section, key) in (("", "versions"), ("tll", "weights"))


def paths(values: Mapping[str, Any], section: str = "", prefix: str = "") -> Iterator[tuple[str, str]]:
    """The full name and value of each path."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from paths(value, section or key, f"{prefix}{key}.")
        elif isinstance(value, str) and is_path(section, key):
            yield f"{prefix}{key}", value
