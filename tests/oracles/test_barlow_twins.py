"""Numbers of the public code of Barlow Twins, so that drift shows: the loss, its gradient, LARS.

barlow_twins.npz was computed once, in float32, on inputs drawn with torch's generator from the seed 20220707: with
main.py of facebookresearch/barlowtwins at 8e8d284ca0bc02f88b92328e53f9b901e86b4a3c (its BarlowTwins without the
backbone, lambda .0051; five steps of its LARS at rate .5, of the loss times .024). The steps are without decay: there
the reference divides by the norm of gradient and decay together, and timm's LARS, as its paper prints, by the sum of
both norms. `whole` are two whole
steps of main.py at its own rates and decay, over a linear layer and a tanh in place of the ResNet.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from polygrain.grappa import barlow_twins as grappa
from polygrain.losses.barlow_twins import barlow_twins
from polygrain.mpcl.pretraining.barlow_twins import BarlowTwins, BarlowTwinsParams
from polygrain.mpcl.pretraining.heads import build_projectors
from polygrain.mpcl.pretraining.optimizer import build_optimizer
from tests.helpers.pretraining_world import Standin
from tests.helpers.settings import pairs
from tests.test_profiles import composed


@pytest.fixture(scope="module")
def oracle():
    with np.load(Path(__file__).with_name("barlow_twins.npz"), allow_pickle=False) as file:
        return {name: torch.from_numpy(file[name]) for name in file.files}


def test_barlow_twins__is_the_references(oracle):
    first, second = (oracle[name].clone().requires_grad_(True) for name in ("z1", "z2"))
    loss = barlow_twins(first, second, 0.0051)
    loss.backward()
    torch.testing.assert_close(loss.detach(), oracle["loss"], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(first.grad, oracle["gradient1"], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(second.grad, oracle["gradient2"], rtol=1e-4, atol=1e-6)


def part(oracle, name):
    return {key.removeprefix(f"{name}."): value for key, value in oracle.items() if key.startswith(f"{name}.")}


def test_build_optimizer__steps_as_the_reference(oracle):
    projector = grappa.build_projector(6, [16, 8])
    starts = part(oracle, "start")
    assert starts.keys() == dict(projector.named_parameters()).keys()
    projector.load_state_dict(projector.state_dict() | starts)
    settings = grappa.Pairs(**pairs(batch=256, learning_rate=0.5, weight_decay=0.0))
    optimizer, losses = grappa.build_optimizer(projector, settings), []
    for _ in range(5):
        loss = 0.024 * barlow_twins(projector(oracle["first"]), projector(oracle["second"]), 0.0051)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    torch.testing.assert_close(torch.tensor(losses), oracle["losses"], rtol=1e-4, atol=1e-6)
    for name, parameter in projector.named_parameters():
        torch.testing.assert_close(parameter.detach(), oracle[f"end.{name}"], rtol=1e-4, atol=1e-6)


def test_profile__two_steps_of_one_head_are_the_references(oracle):
    # Everything but the widths is the profile's: loss, its scale, optimizer, rates and decay.
    values = composed("imagenet100-barlow")["mpcl_encoder"]["barlow_twins"]
    params = BarlowTwinsParams(**values | {"projector": values["projector"] | {"hidden": 16, "out": 8}})
    projectors = build_projectors(Standin.WIDTH, 1, "shared", "plain", params.projector, 0.0)
    twins = BarlowTwins(Standin(), projectors, params).train()
    optimizer = build_optimizer(twins, params.optimizer, 24)
    ours = dict(twins.encoder.named_parameters())
    ours |= {f"projector.{name}": parameter for name, parameter in projectors.networks[0].named_parameters()}
    starts = part(oracle, "whole.start")
    assert ours.keys() == starts.keys()
    with torch.no_grad():
        for name, parameter in ours.items():
            parameter.copy_(starts[name])
    for expected in oracle["whole.losses"]:
        (loss,) = twins(oracle["whole.first"], oracle["whole.second"], 0.0, torch.Generator()).losses
        torch.testing.assert_close(loss.detach(), expected, rtol=1e-5, atol=1e-6)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx(oracle["whole.rates"].tolist())
    for name, parameter in ours.items():
        # Of a step that is far smaller than its parameter few digits stay in it, and all in the momentum.
        momentum = optimizer.state[parameter]["momentum_buffer"]
        torch.testing.assert_close(momentum, oracle[f"whole.momentum.{name}"], rtol=5e-5, atol=1e-8)
        torch.testing.assert_close(parameter.detach(), oracle[f"whole.end.{name}"], rtol=1e-6, atol=1e-7)
