"""What each toy of variants.py must do, run in the copy that has them all."""

import json
from importlib import import_module
from pathlib import Path

import pytest
import torch

from polygrain.app.export import card, folder
from polygrain.config.lists import Task
from polygrain.encoder.config import Attention, Config
from polygrain.encoder.families import family_of
from polygrain.encoder.model import load
from polygrain.encoder.networks import build_on_meta
from polygrain.encoder.origin import require_fit
from polygrain.gsp.poolings.build import build
from polygrain.losses import metric
from polygrain.sources.datasets.load import check_counts
from polygrain.sources.datasets.load import load as load_set
from stages import baseline, fusion
from tests.helpers import layouts, report_world, small
from tests.test_baseline import params as params_of_baseline
from tests.test_fusion import params as params_of_fusion

pytestmark = pytest.mark.slow
MAPS = torch.arange(96.0).reshape(2, 6, 2, 4)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("data")
    small.write_features(made / "features", small.write_images(made / "images"))
    encoder = small.write_encoder(made / "encoder")
    for seed, name in enumerate(("k4", "k8")):
        small.write_model(small.adapted(encoder, [name], seed), made / "adaptor" / name)
    return made


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run that has also made the toy of a row."""
    lists = report_world.lists_of(["one", "two"], ["k4", "k2"], [], ["encoder", "toy_model"])
    values = {name: report_world.VALUES["encoder"] for name in ("encoder", "k4", "k2", "toy_model")}
    return report_world.World(tmp_path_factory.mktemp("page"), lists, values, set()).draw()


def test_source() -> None:
    described = str(Task.model_fields["source"].description)
    assert "toy: An .npz of pictures" in described and Task.model_validate({"source": "toy"})


def test_data_set() -> None:
    layouts.WRITERS["toy_set"](Path.cwd(), 2)
    found = load_set("toy_set", Path.cwd())
    assert len(found.labels) == 8 and Task.model_validate({"source": "toy_set"})
    check_counts(found)


def test_pooling() -> None:
    assert torch.equal(build("toy", 6, factor=2.0)(MAPS).vector, 2 * MAPS.mean((2, 3)))
    with pytest.raises(ValueError, match=r"pooling 'toy': factor is -1.0: Input should be greater than 0"):
        build("toy", 6, factor=-1.0)


def test_loss() -> None:
    embeddings = MAPS.flatten(0, 1).flatten(1).requires_grad_()
    metric.build("toy", 8, 3, margin=0.5)(embeddings, torch.arange(12) % 3).backward()
    assert embeddings.grad.abs().sum() > 0
    with pytest.raises(ValueError, match=r"loss 'toy': margin is -1.0: Input should be"):
        metric.build("toy", 8, 3, margin=-1.0)


def test_family() -> None:
    require_fit(Config(architecture="vgg11", size=32, resize=32, mean=(0.5,) * 3, std=(0.5,) * 3))
    assert family_of(build_on_meta("vgg11", {})).dims(32) == [64, 128, 256, 256, 512, 512, 512, 512]


def test_target(data: Path) -> None:
    text = card.text(load(data / "encoder"), card.About("0", None, {}), dict.fromkeys(folder.FILES, 0.0), True)
    assert "toy.pt2" in folder.FILES and "## toy\n\nNothing loads it." in text and "| `toy.pt2` | a toy |" in text


def test_fusion(data: Path) -> None:
    lists = small.lists(fusions={"toy_fusion": "adaptor"}, models={"toy_fusion": "fusion/toy_fusion"})
    words = {"pairs": "toy_fusion", "params": params_of_fusion(), "lists": lists, "seed": 0}
    fusion.main(data / "images", data / "adaptor", data / "adaptor", Path("toy"), **words)
    assert load(Path("toy")).config.adaptors.names == ["k4", "k8"]


def test_baseline(data: Path) -> None:
    lists = small.lists(baselines={"toy_baseline": "features"}, models={"toy_baseline": "baseline/toy_baseline"})
    words = {
        "kind": "toy_baseline",
        "params": params_of_baseline(),
        "attention": Attention(),
        "lists": lists,
        "seed": 0,
    }
    places = [data / name for name in ("images", "encoder", "features", "labels")]
    baseline.main(*places, Path("toy"), **words)
    assert load(Path("toy")).dim == load(data / "encoder").dim


def test_row(page: Path) -> None:
    assert ("toy_model", "as it is") in report_world.cells_of(page)
    assert "Toy model" in (page / "index.html").read_text()


def test_section(page: Path) -> None:
    text = (page / "index.html").read_text()
    assert 'href="#toy"' in text and '<section id="toy"><h2>Toy</h2>2 toys' in text
    assert "2 toys in Markdown" in (page / "table.md").read_text()


def test_stage(data: Path) -> None:
    stage = import_module("stages.toy")
    stage.main(data / "images", Path("toy"), params=stage.Params(factor=2), lists=small.lists())
    assert json.loads(Path("toy/counts.json").read_text()) == {"dots": 48, "bars": 48}
