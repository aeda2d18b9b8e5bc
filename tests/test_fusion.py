import json
import shutil

import numpy as np
import pytest
import torch

from polygrain.encoder.config import Attention
from polygrain.encoder.model import load, merge
from polygrain.grappa import barlow_twins
from polygrain.store import arrays, work
from polygrain.store.tables import read_csv
from stages import fusion
from tests.helpers.settings import NO_VIEWS, pairs
from tests.helpers.small import adapted, lists, write_encoder, write_images, write_model

NAMES = ["k4", "k8"]


def params(attention=None, **changes):
    neighbour = pairs(**changes) | {"neighbours": 3, "refresh": True}
    supervised = {key: value for key, value in pairs(**changes).items() if key in fusion.Supervised.model_fields}
    return fusion.Params(
        attention=attention or Attention(),
        average=None,
        augmentation=pairs(augmentation=NO_VIEWS.model_copy(update={"jitter": 0.3}), **changes),
        neighbour=neighbour,
        static=neighbour | {"refresh": False},
        supervised=fusion.Supervised(**supervised | {"gamma": 23.0, "learning_rate": 0.01}),
    )


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Images, two adaptor sets with all weights drawn, and a graph."""
    folder = tmp_path_factory.mktemp("world")
    images, encoder = write_images(folder / "images"), write_encoder(folder / "encoder")
    for seed, name in enumerate(NAMES):
        write_model(adapted(encoder, [name], seed, 0.3), folder / "adaptor" / name)
    (folder / "graph").mkdir()
    arrays.write(folder / "graph/neighbours.zarr", np.random.default_rng(0).integers(0, 48, (48, 5)))
    (folder / "graph/summary.json").write_text('{"index": "exact", "wanted": 1.0, "turnover": 0.25}')
    return images, folder / "adaptor", folder / "graph"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(world, output, how, **changes):
    fusion.main(*world, output, pairs=how, params=params(**changes), lists=lists(), seed=0)
    work.clear()  # as the command does
    return load(output)


def losses(folder):
    return [float(row["loss"]) for row in read_csv(folder / "history.csv")]


@pytest.mark.parametrize("how", ["augmentation", "neighbour", "static", "supervised"])
def test_main__only_query_and_key_train_and_their_way_is_written(world, tmp_path, how):
    epochs = 5 if how in ("augmentation", "supervised") else 2
    average, model = run(world, tmp_path / "average", "average"), run(world, tmp_path / how, how, epochs=epochs)
    trained = [name for name in model.state_dict() if ".query." in name or ".key." in name]
    assert len(trained) == 4 and len(losses(tmp_path / how)) == epochs
    if epochs > 2:
        assert losses(tmp_path / how)[-1] < losses(tmp_path / how)[0]
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in average.state_dict().items())
    sets = [load(world[1] / name) for name in NAMES]
    start = merge(sets, NAMES, "attention", torch.Generator().manual_seed(0), 0.02)
    rows = read_csv(tmp_path / how / "moved.csv")
    assert [row["layer"] for row in rows] == ["0", "1"]
    for row, before, after in zip(rows, start.adaptors, model.adaptors, strict=True):
        for name in ("query", "key"):
            a, b = (getattr(layer, name).weight.numpy().astype(float) for layer in (before, after))
            assert float(row[name]) == pytest.approx(np.sqrt(((b - a) ** 2).sum() / (a**2).sum()), rel=1e-4)
            assert float(row[name]) > 0


def test_main__the_average_has_nothing_to_learn(world, tmp_path):
    model = run(world, tmp_path / "out", "average")
    assert model.config.adaptors.fusion == "average" and model.config.adaptors.names == NAMES
    assert read_csv(tmp_path / "out/history.csv") == read_csv(tmp_path / "out/moved.csv") == []
    torch.testing.assert_close(model.with_attention(torch.rand(3, 3, 32, 32))[1], torch.full((3, 2, 2), 0.5))


def test_main__the_graph_is_rebuilt_after_the_first_epoch(world, tmp_path, monkeypatch):
    calls, rebuilt, original = [], [], barlow_twins.nearest_others

    def counted(*given, **named):
        calls.append((len(given[0]), *given[2:]))
        rebuilt.append(original(*given, **named))
        return rebuilt[-1]

    monkeypatch.setattr(barlow_twins, "nearest_others", counted)
    run(world, tmp_path / "a", "neighbour")
    run(world, tmp_path / "again", "neighbour")
    assert calls == [(48, "exact", 1.0)] * 2
    for file in ("weights.safetensors", "config.json", "history.csv"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "again" / file).read_bytes()
    # The turnover is that of plain sets.
    graphs = arrays.open(world[2] / "neighbours.zarr")[:][:, :3], rebuilt[0].neighbours
    fresh = [len({*map(int, now)} - {*map(int, then)}) / 3 for then, now in zip(*graphs, strict=True)]
    rows = read_csv(tmp_path / "a/history.csv")
    assert rows[0]["turnover"] == "0.25" and float(rows[1]["turnover"]) == pytest.approx(np.mean(fresh), rel=1e-5)
    assert 0 < np.mean(fresh) < 1
    run(world, tmp_path / "b", "static")
    assert len(calls) == 2
    first, second = losses(tmp_path / "a"), losses(tmp_path / "b")
    assert first[:1] == second[:1] and first[1:] != second[1:]
    # Where the encoder's graph is approximate, so are those after it.
    graph = shutil.copytree(world[2], tmp_path / "graph")
    (graph / "summary.json").write_text(json.dumps({"index": "ivf", "wanted": 0.9, "turnover": 0.5}))
    run((*world[:2], graph), tmp_path / "c", "neighbour")
    assert calls[2:] == [(48, "ivf", 0.9)]
