"""The real profile `mrt`: its values, and its nine data sets, of which there are small copies."""

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from polygrain.config import compose
from polygrain.config.lists import Lists
from tests.helpers import layouts
from tests.helpers.project import ROOT, copy_project, dvc, repro

PROFILE = ROOT / "profiles/mrt"
TASKS = ("aircraft", "cars", "cub", "flowers", "food101", "products")
UNSEEN = ("dtd", "eurosat", "pets")


def values() -> dict:
    return compose.compose(PROFILE)


def test_profile__is_the_paper_and_nothing_is_missing() -> None:
    lists = Lists(**{key: value for key, value in values().items() if key in Lists.model_fields})
    assert list(lists.clusters(1).values()) == [256, 1024, 4096, 8192, 16384, 32768, 65536, 131072]
    assert [name for name, task in lists.tasks.items() if not task.unseen] == list(TASKS)
    assert [name for name, task in lists.tasks.items() if task.unseen] == list(UNSEEN)
    on = {f"{task}-{how}" for task in (*TASKS, "all") for how in ("full", "one", "many")}
    assert set(lists.supervised_models) == on <= set(lists.models)
    # Every model that is made is evaluated.
    made = {*lists.granularities, *lists.fusions, *lists.baselines, *lists.supervised_models, "encoder", "recommended"}
    assert set(lists.models) == made


def shrink(values: dict) -> None:
    """The profile's own tasks with a small encoder."""
    values["paths"] = {task: f"data/raw/{task}" for task in values["tasks"]}
    values["images"] |= {"side": 48, "published_counts": False}
    values["encoder"] = {"source": "folder", "path": "../../encoders/vit48", "resize": 48}
    values["encoder"] |= {"architecture": None, "side": None, "crop": None, "kwargs": {}, "mean": None, "std": None}
    values["encoder"]["interpolation"] = None
    values["evaluation"]["whitened_dim"] = 8


@pytest.mark.slow
def test_repro__the_first_check_reads_every_data_set_and_trains_nothing(tmp_path: Path) -> None:
    copy_project(tmp_path)
    profile = tmp_path / "profiles/mrt"
    profile.mkdir(parents=True)
    (profile / "dvc.yaml").symlink_to("../../dvc.yaml")
    made = values()
    shrink(made)
    with (profile / "params.yaml").open("w") as stream:
        YAML(typ="safe").dump(made, stream)
    for task in (*TASKS, *UNSEEN):
        layouts.WRITERS[task](profile / "data/raw" / task, 4)
    ran = [stage.rpartition(":")[2] for stage in repro(tmp_path, "profiles/mrt/dvc.yaml:evaluation@encoder")]
    each = {f"{stage}@{task}" for stage in ("images", "features") for task in (*TASKS, *UNSEEN)}
    assert set(ran) == {*each, "encoder", "resolution", "evaluation@encoder"}
    metrics = json.loads((profile / "data/evaluation/encoder/metrics.json").read_text())
    assert set(metrics) >= {*TASKS, *UNSEEN} and metrics["dtd"]["queries"] == 16  # all of it, since it is unseen
    # A data set that loses an annotation file stops at its own stage, which names the file and where to get it.
    (profile / "data/raw/pets/oxford-iiit-pet/annotations/test.txt").unlink()
    message = dvc(tmp_path, "repro", "profiles/mrt/dvc.yaml:images@pets", check=False)
    assert "annotations/test.txt" in message and "https://" in message
