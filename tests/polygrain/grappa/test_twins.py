from pathlib import Path

import numpy as np
import pytest
import torch

from polygrain.encoder.adaptors import Adaptors
from polygrain.encoder.config import Attention
from polygrain.encoder.model import load
from polygrain.encoder.views import Augmentation
from polygrain.grappa import twins
from polygrain.losses.barlow_twins import barlow_twins
from polygrain.store import arrays
from tests.helpers.settings import pairs
from tests.helpers.small import write_encoder, write_images


def test_build_optimizer__norms_have_neither_decay_nor_adaptation():
    module = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.BatchNorm1d(4))
    optimizer = twins.build_optimizer(module, twins.Pairs(**pairs(batch=64, learning_rate=0.5, weight_decay=0.1)))
    weights, others = optimizer.param_groups
    assert weights["weight_decay"] == 0.1 and others["weight_decay"] == 0.0
    assert weights["lr"] == pytest.approx(0.125)
    before = [p.detach().clone() for p in module.parameters()]
    for parameter in module.parameters():
        parameter.grad = torch.full_like(parameter, 2.0)
    optimizer.step()
    torch.testing.assert_close(module[1].weight, before[1] - 0.125 * 2)
    gradient = 2.0 + 0.1 * before[0]
    rate = 0.125 * 1e-3 * before[0].norm() / (torch.full_like(before[0], 2.0).norm() + 0.1 * before[0].norm())
    torch.testing.assert_close(module[0].weight, before[0] - rate * gradient, rtol=1e-3, atol=1e-7)


def test_build_optimizer__without_decay_the_step_still_follows_the_size_of_a_matrix():
    module = torch.nn.Linear(4, 4, bias=False)
    optimizer = twins.build_optimizer(module, twins.Pairs(**pairs(batch=256, learning_rate=0.5, weight_decay=0.0)))
    before = module.weight.detach().clone()
    module.weight.grad = torch.full_like(before, 1000.0)
    optimizer.step()
    moved = (module.weight.detach() - before).norm()
    torch.testing.assert_close(moved, 0.5 * 1e-3 * before.norm(), rtol=1e-3, atol=0)


@pytest.mark.parametrize("count", [1, 3])
def test_build_optimizer__neither_have_the_biases_of_adaptors(count):
    layer = Adaptors(8, 4, count, "average" if count == 1 else "attention", Attention(bias=True))
    trained = torch.nn.ModuleDict(
        {"attention": torch.nn.ModuleList([layer]), "projector": twins.build_projector(8, [4, 4])}
    )
    optimizer = twins.build_optimizer(trained, twins.Pairs(**pairs(batch=256, learning_rate=0.5, weight_decay=0.1)))
    names = {id(parameter): name.rpartition(".")[2] for name, parameter in trained.named_parameters()}
    weights, others = ([names[id(p)] for p in group["params"]] for group in optimizer.param_groups)
    attention = [] if count == 1 else ["weight", "weight"]  # Q and K
    assert sorted(weights) == sorted(["up", "weight", *attention, "weight", "weight"])
    assert len(weights) + len(others) == len(names) and {"bias", "up_bias"} <= set(others)
    # A bias moves by the plain learning rate times its gradient, one of an adaptor as any other.
    layer.up_bias.data.fill_(3.0)
    layer.up_bias.grad = torch.full_like(layer.up_bias, 2.0)
    optimizer.step()
    torch.testing.assert_close(layer.up_bias.data, torch.full_like(layer.up_bias, 3.0 - 0.5 * 2.0))


def test_train__refuses_more_neighbours_than_the_graph_has(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match=r"set knn_graph\.neighbours to 4 or more"):
        record(monkeypatch, tmp_path, neighbours=4)


def record(monkeypatch, tmp_path: Path, **changes) -> list[tuple[np.ndarray, bool]]:
    """Trains one epoch on pairs and returns what the augmentation was asked for, with whether it changes anything."""
    monkeypatch.chdir(tmp_path)
    images = write_images(tmp_path / "images")
    model = load(write_encoder(tmp_path / "encoder"))
    pixels = arrays.open(images / "dots" / "pixels.zarr")
    asked = []

    def augment(images, size, params: Augmentation, generator):
        asked.append((images.cpu().numpy(), params.jitter > 0))
        return images.permute(0, 3, 1, 2).float() / 255

    monkeypatch.setattr(twins, "augment", augment)
    jitter = pairs()["augmentation"].model_copy(update={"jitter": 0.3})
    values = pairs(epochs=1, batch=8, augmentation=jitter) | {"neighbours": 2, "refresh": False} | changes
    graph = np.repeat(np.arange(24)[::-1, None], 3, 1)  # the partner of row i is row 23 - i
    (tmp_path / "graph").mkdir()
    arrays.write(tmp_path / "graph/neighbours.zarr", graph)
    part = torch.nn.Linear(1, 1)
    reader = arrays.open(tmp_path / "graph/neighbours.zarr")
    twins.train(model, part, pixels, np.arange(24), reader, twins.NeighbourPairs(**values), 0, tmp_path / "work")
    return asked


def test_train__partners_come_from_the_graph(monkeypatch, tmp_path):
    asked = record(monkeypatch, tmp_path)
    pixels = arrays.open(tmp_path / "images/dots/pixels.zarr")[:24]
    row = {image.tobytes(): i for i, image in enumerate(pixels)}
    for (first, _), (second, _) in zip(asked[::2], asked[1::2], strict=True):
        assert [23 - row[image.tobytes()] for image in first] == [row[image.tobytes()] for image in second]
    assert sorted(row[image.tobytes()] for images, _ in asked[::2] for image in images) == list(range(24))


@pytest.mark.parametrize(("augmented", "first"), [("both", True), ("second", False)])
def test_train__which_of_a_pair_is_augmented(monkeypatch, tmp_path, augmented, first):
    asked = record(monkeypatch, tmp_path, augmented=augmented)
    assert {changed for _, changed in asked[::2]} == {first} and {changed for _, changed in asked[1::2]} == {True}


def test_learn__the_first_loss_is_barlow_twins_of_the_projected_halves(tmp_path):
    x = torch.randn(16, 6, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    linear, projector = torch.nn.Linear(6, 4), twins.build_projector(4, [8])
    expected = 0.1 * barlow_twins(projector(linear(x)), projector(linear(x.flip(0))), 0.005).detach()
    table = torch.arange(16).flip(0)[:, None]
    given = pairs(epochs=1, batch=16)
    chosen = twins.TwinSettings(
        **{key: value for key, value in given.items() if key in twins.TwinSettings.model_fields}
    )
    trained = torch.nn.ModuleDict({"linear": linear, "projector": projector})
    given = x.__getitem__, lambda stored, *_: stored
    history = twins.learn(trained, linear, *given, 16, lambda epoch: table, chosen, 0, tmp_path)
    assert history[0]["loss"] == pytest.approx(float(expected), rel=1e-4)
