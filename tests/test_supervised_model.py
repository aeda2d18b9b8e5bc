import pytest
import torch

from polygrain.encoder.config import Attention
from polygrain.encoder.model import load
from stages import supervised_model
from tests.helpers.keys import assert_key_follows
from tests.helpers.settings import classifier
from tests.helpers.small import TASKS, lists, write_encoder, write_images

SETTINGS = classifier(epochs=3, learning_rate=0.001)
PARAMS = supervised_model.Params(width=4, start_std=0.02, full=SETTINGS, one=SETTINGS, many=SETTINGS)
ATTENTION = Attention(pooling="sum", bias=True)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    return write_images(folder / "images"), write_encoder(folder / "encoder")


@pytest.fixture(autouse=True)
def work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(world, output, how, on="dots"):
    given = {"params": PARAMS, "attention": ATTENTION, "lists": lists(), "seed": 0}
    return supervised_model.main(*world, output, name="x", on=on, how=how, **given)


@pytest.mark.parametrize(("how", "on"), [("full", "dots"), ("one", "all"), ("many", TASKS[1])])
def test_main__learns_the_true_labels_of_one_task_or_all(world, tmp_path, how, on):
    said = run(world, tmp_path / "out", how, on)
    assert said.startswith(f"{6 if on == 'all' else 3} classes")
    model, encoder = load(tmp_path / "out"), load(world[1])
    losses = [float(row.split(",")[1]) for row in (tmp_path / "out" / "history.csv").read_text().splitlines()[1:]]
    assert losses[-1] < losses[0]
    same = [
        torch.equal(tensor, encoder.state_dict()[name])
        for name, tensor in model.without_adaptors().state_dict().items()
    ]
    assert all(same) == (how != "full")
    assert len(model.adaptors) == (0 if how == "full" else 2)
    if how != "full":
        assert len(model.config.adaptors.names) == {"one": 1, "many": 2}[how]
        assert model.config.adaptors.attention == ATTENTION


def test_main__its_key_follows_what_it_reads(world, tmp_path, monkeypatch):
    files = ["0/dots/table.parquet", "1/config.json"]
    assert_key_follows(files, lambda given: run(given, tmp_path / "out", "one"), world, tmp_path, monkeypatch)
