import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

from stages.core import adaptation
from stages.core.adaptation import Lanes, Sides, activate, gradient, ranks, starts, together

CPU = torch.device("cpu")


def drawn(runs: int = 5, views: int = 2, pairs: int = 9, dim: int = 6) -> Sides:
    generator = torch.Generator().manual_seed(0)
    return Sides(*torch.randn(2, runs, views, pairs, dim, generator=generator))


def plain(weights: torch.Tensor, left: torch.Tensor, right: torch.Tensor, sigma: float) -> tuple[float, torch.Tensor]:
    """One run by autograd, views averaged."""
    weights = weights.clone().requires_grad_()
    target, losses = torch.arange(left.shape[1]), []
    for x, y in zip(left, right, strict=True):
        similarity = sigma * normalize(torch.relu(x @ weights.T), eps=1e-8) @ normalize(torch.relu(y @ weights.T)).T
        losses.append((cross_entropy(similarity, target) + cross_entropy(similarity.T, target)) / 2)
    loss = torch.stack(losses).mean()
    return loss.item(), torch.autograd.grad(loss, weights)[0]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("sigma", "block_bytes"), [(1.0, 2**20), (15.0, 2**20), (15.0, 100)])
def test_gradient__equals_autograd_run_by_run(monkeypatch, threads, sigma, block_bytes):
    monkeypatch.setattr(adaptation, "BLOCK_BYTES", block_bytes)
    monkeypatch.setitem(adaptation.TOGETHER_BYTES, "cpu", 2 * 4 * 9 * (6 * 8 + 9))
    train, weights = drawn(), starts([1, 2, 3, 4, 5], 8, 6)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with Lanes(CPU) as lanes:
            assert lanes.count == threads
            losses, found = gradient(weights, train, sigma, lanes)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    for run in range(5):
        loss, expected = plain(weights[run], train.left[run], train.right[run], sigma)
        assert losses[run].item() == pytest.approx(loss, rel=1e-5)
        torch.testing.assert_close(found[run], expected, rtol=1e-4, atol=1e-6)


def test_gradient__all_zero_rows_after_relu():
    train, weights = drawn(2, 1), starts([1, 2], 8, 6)
    train.left[:, :, 3] = 0
    weights[1] = -weights[1].abs()
    train.right[1] = train.right[1].abs()  # every unit of every right image is closed in run 1
    with Lanes(CPU) as lanes:
        losses, found = gradient(weights, train, 15.0, lanes)
        better = ranks(weights, train, lanes)
    assert losses.isfinite().all() and found.isfinite().all()
    assert losses[1].item() == pytest.approx(math.log(9), rel=1e-5)  # everything is alike
    assert better[1].tolist() == [9] * 9
    loss, expected = plain(weights[0], train.left[0], train.right[0], 15.0)
    assert losses[0].item() == pytest.approx(loss, rel=1e-5)
    torch.testing.assert_close(found[0], expected, rtol=1e-4, atol=1e-6)


def test_activate__unit_rows_or_zero():
    descriptors, weights = torch.randn(1, 5, 4, generator=torch.Generator().manual_seed(0)), torch.eye(4)[None]
    descriptors[0, 2] = -1
    units, inverse = activate(descriptors, weights)
    expected = normalize(torch.relu(descriptors), dim=2)
    torch.testing.assert_close(units, expected)
    assert units[0, 2].tolist() == [0, 0, 0, 0] and inverse.isfinite().all()


def test_ranks__are_those_of_the_first_view():
    test, weights = drawn(3), starts([1, 2, 3], 8, 6)
    with Lanes(CPU) as lanes:
        found = ranks(weights, test, lanes)
    for run in range(3):
        x, y = (normalize(torch.relu(side[run, 0] @ weights[run].T), dim=1) for side in test)
        similarity = x @ y.T
        for i in range(9):
            forth = int((similarity[i] >= similarity[i, i]).sum())
            back = int((similarity[:, i] >= similarity[i, i]).sum())
            assert found[run, i] == min(forth, back)


def test_starts__follow_the_law_of_a_linear_layer():
    weights = starts([7, 8, 7], 300, 64)
    assert torch.equal(weights[0], weights[2]) and not torch.equal(weights[0], weights[1])
    layer = nn.Linear(64, 300, bias=False).weight
    bound = 1 / math.sqrt(64)
    assert weights.abs().max() <= bound and weights.abs().max() > 0.99 * bound
    assert weights.std().item() == pytest.approx(layer.std().item(), rel=0.05)


def test_together__is_bounded_by_memory():
    assert together(3150, 1024, CPU) == 1
    assert together(100, 64, CPU) == 8 * 2**20 // (400 * (384 + 100))
