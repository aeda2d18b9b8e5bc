"""Numbers of the public code of Barlow Twins and TLDR, so that drift shows: the loss, its gradient, LARS.

barlow_twins.npz was computed once, in float32, on inputs drawn with torch's generator from the seed 20220707: with
main.py of facebookresearch/barlowtwins at 8e8d284ca0bc02f88b92328e53f9b901e86b4a3c (its BarlowTwins without the
backbone, lambda .0051; five steps of its LARS at rate .5, of the loss times .024), and with loss.py of naver/tldr at
bcbd04397ec1b4907d40ace843143361a57eda9c. The steps are without decay: there the reference divides by the norm of
gradient and decay together, and timm's LARS, as its paper prints, by the sum of both norms.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from polygrain.grappa import twins
from polygrain.losses.barlow_twins import barlow_twins
from tests.helpers.settings import pairs


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


def test_barlow_twins__times_its_scale_is_tldrs(oracle):
    loss = barlow_twins(oracle["z1"], oracle["z2"], 0.0039) / 32
    torch.testing.assert_close(loss, oracle["tldr_loss"], rtol=1e-5, atol=1e-7)


def test_build_optimizer__steps_as_the_reference(oracle):
    projector = twins.build_projector(6, [16, 8])
    starts = {name.removeprefix("start."): tensor for name, tensor in oracle.items() if name.startswith("start.")}
    assert starts.keys() == dict(projector.named_parameters()).keys()
    projector.load_state_dict(projector.state_dict() | starts)
    settings = twins.Pairs(**pairs(batch=256, learning_rate=0.5, weight_decay=0.0))
    optimizer, losses = twins.build_optimizer(projector, settings), []
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
