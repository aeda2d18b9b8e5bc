import numpy as np
import pytest
import torch

from polygrain.encoder.adaptors import Adaptors
from polygrain.encoder.config import Attention
from polygrain.encoder.model import load
from polygrain.grappa.barlow_twins import (
    NeighbourPairs,
    Pairs,
    build_optimizer,
    build_projector,
    first_neighbours,
    train,
)
from polygrain.losses.barlow_twins import barlow_twins
from polygrain.store import arrays
from tests.helpers.settings import pairs
from tests.helpers.small import write_encoder, write_images


def test_build_optimizer__norms_have_neither_decay_nor_adaptation():
    module = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.BatchNorm1d(4))
    optimizer = build_optimizer(module, Pairs(**pairs(batch=64, learning_rate=0.5, weight_decay=0.1)))
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
    optimizer = build_optimizer(module, Pairs(**pairs(batch=256, learning_rate=0.5, weight_decay=0.0)))
    before = module.weight.detach().clone()
    module.weight.grad = torch.full_like(before, 1000.0)
    optimizer.step()
    moved = (module.weight.detach() - before).norm()
    torch.testing.assert_close(moved, 0.5 * 1e-3 * before.norm(), rtol=1e-3, atol=0)


@pytest.mark.parametrize("count", [1, 3])
def test_build_optimizer__neither_have_the_biases_of_adaptors(count):
    layer = Adaptors(8, 4, count, "average" if count == 1 else "attention", Attention(bias=True))
    trained = torch.nn.ModuleDict({"attention": torch.nn.ModuleList([layer]), "projector": build_projector(8, [4, 4])})
    optimizer = build_optimizer(trained, Pairs(**pairs(batch=256, learning_rate=0.5, weight_decay=0.1)))
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


def test_first_neighbours__refuses_more_than_the_graph_has():
    with pytest.raises(ValueError, match=r"set knn_graph\.neighbours to 4 or more"):
        first_neighbours(np.zeros((9, 3), np.int64), 4)


def test_train__the_first_loss_is_barlow_twins_of_the_projected_halves(tmp_path):
    model, images = load(write_encoder(tmp_path / "encoder")), write_images(tmp_path / "images")
    arrays.write(tmp_path / "neighbours.zarr", np.arange(24)[::-1, None].copy())  # the partner of row i is row 23 - i
    pixels, graph = (arrays.open(file) for file in (images / "dots/pixels.zarr", tmp_path / "neighbours.zarr"))
    features = model.features(torch.from_numpy(pixels[:24]).permute(0, 3, 1, 2).float() / 255)
    torch.manual_seed(0)
    projector = build_projector(model.dim, [32, 16])
    expected = 0.1 * barlow_twins(projector(features), projector(features.flip(0)), 0.005).detach()
    chosen = NeighbourPairs(**pairs(epochs=1, batch=24), neighbours=1, refresh=False)
    part = torch.nn.Linear(1, 1)
    history = train(model, part, pixels, np.arange(24), graph, chosen, 0, tmp_path / "work")
    assert history[0]["loss"] == pytest.approx(float(expected), rel=1e-4)
