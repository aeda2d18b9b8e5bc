import pytest
import torch
from torch import nn

from polygrain.mpcl.pretraining.heads import build_projectors, follow, momentum_copy
from tests.helpers.pretraining_world import projector


@pytest.mark.parametrize(("reading", "sizes"), [("shared", [12]), ("same", [12] * 4), ("different", [6, 8, 10, 6])])
def test_build_projectors__the_three_readings(reading, sizes):
    built = build_projectors(24, 4, reading, "plain", projector("none"), 0.5)
    assert [network[0].out_features for network in built.networks] == sizes
    assert built(torch.randn(3, 24)).shape == (4, 3, 8)
    dropout = build_projectors(24, 4, reading, "dropout", projector("none"), 0.5)
    assert [any(isinstance(layer, nn.Dropout) for layer in heads.modules()) for heads in (built, dropout)] == [0, 1]


def test_follow__is_the_moving_average_of_every_parameter():
    fast, start = nn.Linear(3, 2), nn.Linear(3, 2)
    slow = momentum_copy(start)
    assert not any(p.requires_grad for p in slow.parameters())
    follow(slow, fast, 0.9)
    for xi, old, theta in zip(slow.parameters(), start.parameters(), fast.parameters(), strict=True):
        torch.testing.assert_close(xi.detach(), 0.9 * old.detach() + 0.1 * theta.detach())
