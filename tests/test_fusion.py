import json

import numpy as np
import pytest
import torch

from polygrain.encoder.adaptors import Adaptors
from polygrain.encoder.config import AdaptorConfig, Attention
from polygrain.encoder.model import load, save
from polygrain.grappa import twins as pairs_module
from polygrain.store import arrays
from polygrain.store.tables import read_csv
from stages import fusion
from tests.helpers.settings import NO_VIEWS, pairs
from tests.helpers.small import lists, write_encoder, write_images

NAMES = ["k4", "k8"]


def labelled(**changes):
    """Settings of the fusion that learns from true labels."""
    chosen = {key: value for key, value in pairs(**changes).items() if key in fusion.Supervised.model_fields}
    return fusion.Supervised(**chosen | {"gamma": 23.0, "learning_rate": 0.01})


def params(**changes):
    attention = changes.pop("attention", Attention())
    neighbour = pairs(**changes) | {"neighbours": 3, "refresh": True}
    views = pairs(augmentation=NO_VIEWS.model_copy(update={"jitter": 0.3}), **changes)
    return fusion.Params(
        attention=attention,
        average=None,
        augmentation=views,
        neighbour=neighbour,
        static=neighbour | {"refresh": False},
        supervised=labelled(**changes),
    )


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Images, two adaptor sets with all weights drawn, and a graph."""
    monkeypatch.chdir(tmp_path)
    images, encoder = write_images(tmp_path / "images"), write_encoder(tmp_path / "encoder")
    for seed, name in enumerate(NAMES):
        model, generator = load(encoder), torch.Generator().manual_seed(seed)
        layers = [Adaptors(24, 8, 1, "average") for _ in range(2)]
        for parameter in torch.nn.ModuleList(layers).parameters():
            parameter.data.normal_(0, 0.3, generator=generator)
        model.insert(layers, AdaptorConfig(names=[name], width=8, fusion="average"))
        (tmp_path / "adaptor" / name).mkdir(parents=True)
        save(model, tmp_path / "adaptor" / name)
    (tmp_path / "graph").mkdir()
    arrays.write(tmp_path / "graph" / "neighbours.zarr", np.random.default_rng(0).integers(0, 48, (48, 5)))
    return images, tmp_path / "adaptor", tmp_path / "graph"


def run(world, output, how, **changes):
    fusion.main(*world, output, pairs=how, params=params(**changes), lists=lists(), seed=0)
    return load(output)


def start_of(world):
    sets = [load(world[1] / name) for name in NAMES]
    return fusion.merge(sets, NAMES, "attention", torch.Generator().manual_seed(0), 0.02)


def losses(folder):
    return [float(row["loss"]) for row in read_csv(folder / "history.csv")]


@pytest.mark.parametrize("how", ["augmentation", "neighbour", "static", "supervised"])
def test_main__only_query_and_key_train(world, tmp_path, how):
    epochs = 8 if how in ("augmentation", "supervised") else 2
    average, model = run(world, tmp_path / "average", "average"), run(world, tmp_path / how, how, epochs=epochs)
    trained = {name: t for name, t in model.state_dict().items() if ".query." in name or ".key." in name}
    assert len(trained) == 4 and len(losses(tmp_path / how)) == epochs
    if epochs > 2:
        assert losses(tmp_path / how)[-1] < losses(tmp_path / how)[0]
    for name, tensor in average.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name]), name
    assert all(not torch.equal(tensor, start_of(world).state_dict()[name]) for name, tensor in trained.items())


def test_main__writes_how_far_query_and_key_moved(world, tmp_path):
    model = run(world, tmp_path / "out", "augmentation")
    rows = read_csv(tmp_path / "out/moved.csv")
    assert [row["layer"] for row in rows] == ["0", "1"]
    for row, before, after in zip(rows, start_of(world).adaptors, model.adaptors, strict=True):
        for name in ("query", "key"):
            a, b = (getattr(layer, name).weight.numpy().astype(float) for layer in (before, after))
            assert float(row[name]) == pytest.approx(np.sqrt(((b - a) ** 2).sum() / (a**2).sum()), rel=1e-4)
            assert float(row[name]) > 0.001


def test_main__the_average_has_nothing_to_learn(world, tmp_path):
    model = run(world, tmp_path / "out", "average")
    assert model.config.adaptors.fusion == "average" and model.config.adaptors.names == NAMES
    assert read_csv(tmp_path / "out/history.csv") == read_csv(tmp_path / "out/moved.csv") == []
    torch.testing.assert_close(model.attention(torch.rand(3, 3, 32, 32)), torch.full((3, 2, 2), 0.5))


def test_main__fusing_twice_the_same_set_is_that_set(world, tmp_path):
    for file in ("weights.safetensors", "config.json"):
        content = (world[1] / "k4" / file).read_bytes()
        (world[1] / "k8" / file).write_bytes(content.replace(b'"k4"', b'"k8"'))
    images = torch.rand(3, 3, 32, 32)
    for how in ("average", "augmentation"):
        torch.testing.assert_close(run(world, tmp_path / how, how)(images), load(world[1] / "k4")(images))


def test_main__the_graph_is_rebuilt_after_the_first_epoch(world, tmp_path, monkeypatch):
    calls, original = [], pairs_module.nearest_others

    def counted(*given, **named):
        calls.append((len(given[0]), *given[2:]))
        return original(*given, **named)

    monkeypatch.setattr(pairs_module, "nearest_others", counted)
    run(world, tmp_path / "a", "neighbour", epochs=3)
    run(world, tmp_path / "again", "neighbour", epochs=3)
    assert calls == [(48, "exact", 1.0)] * 4
    for file in ("weights.safetensors", "config.json", "history.csv"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "again" / file).read_bytes()
    run(world, tmp_path / "b", "static", epochs=3)
    assert len(calls) == 4
    first, second = losses(tmp_path / "a"), losses(tmp_path / "b")
    assert first[:1] == second[:1] and first[1:] != second[1:]
    # Where the encoder's graph is approximate, so are those after it.
    (world[2] / "summary.json").write_text(json.dumps({"index": "ivf", "wanted": 0.9, "recall": 0.93}))
    run(world, tmp_path / "c", "neighbour", epochs=2)
    assert calls[4:] == [(48, "ivf", 0.9)]


def test_main__supervised_needs_labels(world, tmp_path):
    images = write_images(tmp_path / "flat", labelled=False)
    with pytest.raises(ValueError, match="no labels"):
        run((images, *world[1:]), tmp_path / "out", "supervised")


def test_main__attention_options_reach_the_model(world, tmp_path):
    options = Attention(class_token=False, pooling="sum", scaled=False, bias=True)
    model = run(world, tmp_path / "out", "augmentation", attention=options)
    assert model.config.adaptors.attention == options
    assert all(layer.attention == options and layer.query.bias is not None for layer in model.adaptors)


def test_merge__sets_of_different_width_are_refused(world):
    wide, narrow = load(world[1] / "k4"), load(world[1] / "k8")
    config = AdaptorConfig(names=["k8"], width=4, fusion="average")
    narrow.config = narrow.config.model_copy(update={"adaptors": config})
    with pytest.raises(ValueError, match=r"different widths \[4, 8\]"):
        fusion.merge([wide, narrow], NAMES, "average", torch.Generator(), 0.0)
