"""The items of GSP's lists."""

from collections.abc import Mapping
from itertools import product
from typing import Any

from pydantic import Field

from polygrain.config.schema import Count, Name, Section, Text


class Collage(Section):
    """Pictures of one task beside pictures of another; where both are one task, its listed classes are background.

    Without backgrounds (GSP's distilled collages) each target stands alone; the listed classes are left out.
    """

    targets: Text = Field(description="the task whose classes are to be told apart")
    backgrounds: Text | None = Field(description="the task of the three pictures beside; null: none, the targets alone")
    background_classes: list[Text] = Field(description="empty: all classes of the backgrounds' task")
    copies: Count = Field(description="collages of each training target, with other backgrounds")


class Run(Section):
    """One configuration of metric learning."""

    images: Text = Field(description="folder of its images: images/<task> or gsp_collage/<collages>")
    loss: Text = Field(description="a name of gsp_folds.losses")
    pooling: Text = Field(description="a name of gsp_folds.poolings")
    zero_shot: float = Field(ge=0, lt=1, description="share of the zero-shot loss; 0: the metric loss alone")
    values: dict[Name, float | int] = Field(description="of the pooling, in place of those in gsp_folds.poolings")


class Training(Section):
    """One fold of a run, from one seed. Its name is <run>-<fold>-<repeat>."""

    run: Name = Field(description="a run of `gsp_runs`")
    images: Text = Field(description="as the run's")
    fold: int = Field(ge=0, lt=1000, description="from 0")
    repeat: int = Field(ge=0, lt=1000, description="from 0; each draws another seed")


class Classifier(Section):
    """One classifier of known classes, trained from nothing (GSP, Table 5)."""

    images: Text = Field(description="folder of its images, images/<task>, with training and test images of each class")
    network: Name = Field(description="a name of gsp_classifier.networks")
    pooling: Text = Field(description="a name of gsp_classifier.poolings")
    zero_shot: float = Field(ge=0, lt=1, description="share of the zero-shot loss; 0: cross entropy alone")


def trainings(values: Mapping[str, Any]) -> Any:
    """`gsp_trainings` with the item of each training where it is a number, without those of runs that are not here."""
    given, runs = values["gsp_trainings"], values.get("gsp_runs", {})
    try:
        if isinstance(given, dict):
            return {name: item for name, item in given.items() if item["run"] in runs}
        protocol = values["gsp_folds"]["protocol"]
        folds = 1 if protocol["kind"] == "tuning" else protocol["folds"]
        return {
            f"{run}-{fold}-{repeat}": {"run": run, "images": spec["images"], "fold": fold, "repeat": repeat}
            for run, spec in runs.items()
            for fold, repeat in product(range(folds), range(given))
        }
    except (KeyError, TypeError, AttributeError):
        return given  # something is no section, which is refused elsewhere
