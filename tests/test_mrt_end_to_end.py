"""The real profile `mrt` on small copies of its nine data sets: every stage, every table."""

import json
from pathlib import Path

import pytest
import torch
from ruamel.yaml import YAML

from polygrain.config import compose
from polygrain.config.lists import Lists
from polygrain.grappa.twins import build_projector
from polygrain.runner.command import check
from tests.helpers import layouts
from tests.helpers.project import ROOT, copy_profile, copy_project, dvc, repro

PROFILE = ROOT / "profiles/mrt"
TASKS = ("aircraft", "cars", "cub", "flowers", "food101", "products")
UNSEEN = ("dtd", "eurosat", "pets")


def values() -> dict:
    return compose.compose(PROFILE)


def test_profile__is_the_paper_and_nothing_is_missing() -> None:
    lists = Lists(**{key: value for key, value in values().items() if key in Lists.model_fields})
    assert list(lists.sizes.values()) == [256, 1024, 4096, 8192, 16384, 32768, 65536, 131072]
    assert [name for name, task in lists.tasks.items() if not task.unseen] == list(TASKS)
    assert [name for name, task in lists.tasks.items() if task.unseen] == list(UNSEEN)
    on = {f"{task}-{how}" for task in (*TASKS, "all") for how in ("full", "one", "many")}
    assert set(lists.supervised_models) == on <= set(lists.models)
    # Every model that is made is evaluated.
    made = {*lists.granularities, *lists.fusions, *lists.baselines, *lists.supervised_models, "encoder", "chosen"}
    made |= {f"distilled_{name}" for name in lists.distillations}
    assert set(lists.models) == made


def test_profile__has_the_values_that_its_comments_give_to_others() -> None:
    made = values()
    # No rounding of ours between the encoder and its published row.
    assert made["features"]["precision"] == made["evaluation"]["precision"] == "float32"
    tldr = made["baseline"]["tldr"]  # the defaults of its code
    assert (tldr["learning_rate"], tldr["weight_decay"], tldr["beta"], tldr["scale"]) == (0.2, 1e-6, 3.9e-3, 1 / 32)
    assert (tldr["batch"], tldr["epochs"], tldr["warmup"], tldr["neighbours"]) == (1024, 100, 10, 5)
    linear = [layer for layer in build_projector(tldr["dim"], tldr["projector"]) if isinstance(layer, torch.nn.Linear)]
    assert [layer.out_features for layer in linear] == [2048] * 3  # mlp-2-2048


def test_profile__passes_the_check_but_for_the_data(tmp_path: Path) -> None:
    with pytest.raises(ValueError) as error:
        check(copy_profile(tmp_path, "mrt"))
    lines = str(error.value).split("\n")[1:]
    assert lines and all("data/raw/" in line and "does not exist" in line for line in lines)


def shrink(values: dict) -> None:
    """The profile's own lists with a small encoder, few clusters, one epoch, and fewer of the supervised models."""
    for task, item in values["tasks"].items():
        item["path"] = f"data/raw/{task}"
    values["granularities"] = {"k4": "adaptor/k4", "k8": "adaptor/k8"}
    kept = ("cub-full", "all-many")
    values["supervised_models"] = {name: values["supervised_models"][name] for name in kept}
    values["models"] = {
        name: folder
        for name, folder in values["models"].items()
        if not name.startswith("k") and (name in kept or not folder.startswith("supervised_model/"))
    } | values["granularities"]
    values["images"] |= {"side": 48, "published_counts": False}
    values["encoder"] = {"source": "folder", "path": "../../encoders/vit48", "resize": 48}
    values["encoder"] |= {"architecture": None, "side": None, "crop": None, "kwargs": {}, "mean": None, "std": None}
    values["encoder"]["interpolation"] = None
    values["choice"]["criterion"]["fewest"] = 8
    trained = [values["adaptor"], values["distillation"], *values["fusion"].values(), *values["baseline"].values()]
    for section in [*trained, *values["supervised_model"].values()]:
        if isinstance(section, dict) and "epochs" in section:
            section |= {"epochs": 1, "batch": 48} | ({"projector": [32, 16]} if "projector" in section else {})
    values["baseline"]["tldr"]["dim"] = values["evaluation"]["whitened_dim"] = 8
    values["seeds"]["largest"] = 8


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("mrt")
    copy_project(folder)
    profile = folder / "profiles/mrt"
    profile.mkdir(parents=True)
    (profile / "dvc.yaml").symlink_to("../../dvc.yaml")
    made = values()
    shrink(made)
    with (profile / "params.yaml").open("w") as stream:
        YAML(typ="safe").dump(made, stream)
    for task in (*TASKS, *UNSEEN):
        layouts.WRITERS[task](profile / "data/raw" / task, 4)
    return folder


@pytest.mark.slow
def test_repro__the_first_check_trains_nothing(project: Path) -> None:
    ran = [stage.rpartition(":")[2] for stage in repro(project, "profiles/mrt/dvc.yaml:evaluation@encoder")]
    assert set(ran) == {*(f"images@{task}" for task in (*TASKS, *UNSEEN)), "encoder", "evaluation@encoder"}
    assert set(json.loads((project / "profiles/mrt/data/evaluation/encoder/metrics.json").read_text())) >= set(TASKS)


@pytest.mark.slow
def test_repro__every_table_of_the_report(project: Path) -> None:
    ran = repro(project, "profiles/mrt/dvc.yaml")
    assert any(stage.endswith("mrt_report@tables") for stage in ran) and any(stage.endswith("report") for stage in ran)
    data = project / "profiles/mrt/data"
    metrics = json.loads((data / "mrt_report/tables/metrics.json").read_text())
    for model in ("encoder", "one_set", "many_sets", "k4", "k8", "oracle", "average", "augmentation", "neighbour"):
        assert all(metrics["table 2"][model][task]["r_precision"] is not None for task in TASKS), model
    for model in ("static", "tldr", "encoder_whitened"):
        assert metrics["table 2"][model]["mean"]["r_precision"] is not None, model
    assert metrics["table 3"]["cub-full"]["cars"]["r_precision"] is not None
    assert all(metrics["table 4"][m][t]["r_precision"] is not None for m in ("encoder", "all-many") for t in UNSEEN)
    assert all(metrics["table 5"]["supervised"][task]["map_at_r"] is not None for task in TASKS)
    assert metrics["encoder_repeats_its_row"] is False  # small copies repeat no published row
    page = (data / "mrt_report/tables/index.html").read_text()
    assert "Which granularity each task uses" in page and (data / "report/index.html").exists()
    unseen = json.loads((data / "evaluation/neighbour/metrics.json").read_text())["dtd"]
    assert unseen["queries"] == 16  # all of it, since none of it trains
    assert repro(project, "profiles/mrt/dvc.yaml") == []
    # A data set that loses an annotation file stops at its own stage, which names the file and where to get it.
    (data / "raw/pets/oxford-iiit-pet/annotations/test.txt").unlink()
    said = dvc(project, "repro", "profiles/mrt/dvc.yaml:images@pets", check=False)
    assert "annotations/test.txt is missing; get it from https://" in said
