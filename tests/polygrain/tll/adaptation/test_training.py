import math

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from polygrain.tll.adaptation import training
from polygrain.tll.adaptation.descriptors import Sides
from polygrain.tll.adaptation.training import Training, gradient, ranks, starts, train


def drawn(runs: int = 5, views: int = 2, pairs: int = 9, dim: int = 6) -> Sides:
    generator = torch.Generator().manual_seed(0)
    return Sides(*torch.randn(2, runs, views, pairs, dim, generator=generator))


def test_gradient__is_zero_at_rows_that_are_all_zero_after_relu():
    train, weights = drawn(2, 1), starts([1, 2], 8, 6)
    train.left[:, :, 3] = 0
    weights[1] = -weights[1].abs()
    train.right[1] = train.right[1].abs()  # every unit of every right image is closed in run 1
    losses, found = gradient(weights, train, 15.0)
    assert losses.isfinite().all() and found.isfinite().all()
    assert losses[1].item() == pytest.approx(math.log(9), rel=1e-5)  # everything is alike
    assert ranks(weights, train)[1].tolist() == [9] * 9


def test_ranks__are_those_of_the_first_view():
    test, weights = drawn(3), starts([1, 2, 3], 8, 6)
    better = ranks(weights, test)
    for run in range(3):
        x, y = (normalize(torch.relu(side[run, 0] @ weights[run].T), dim=1) for side in test)
        similarity = x @ y.T
        for i in range(9):
            forth, back = ((line >= similarity[i, i]).sum() for line in (similarity[i], similarity[:, i]))
            assert better[run, i] == min(forth, back)


def test_starts__follow_the_law_of_a_linear_layer():
    weights = starts([7, 8, 7], 300, 64)
    assert torch.equal(weights[0], weights[2]) and not torch.equal(weights[0], weights[1])
    layer = nn.Linear(64, 300, bias=False).weight
    bound = 1 / math.sqrt(64)
    assert weights.abs().max() <= bound and weights.abs().max() > 0.99 * bound
    assert weights.std().item() == pytest.approx(layer.std().item(), rel=0.05)


def problem(runs: int = 3) -> tuple[Sides, Sides]:
    """Two noisy views of shared latents through one random map each: what can be learned is which directions agree."""
    generator = torch.Generator().manual_seed(0)
    latents, noise = torch.randn(runs, 1, 160, 6, generator=generator), torch.randn(2, 6, 24, generator=generator)
    nuisance = torch.randn(2, runs, 1, 160, 10, generator=generator) @ torch.randn(10, 24, generator=generator)
    left, right = (latents @ noise[0] + 4 * part for part in nuisance)
    split = (slice(None), slice(None), slice(0, 120)), (slice(None), slice(None), slice(120, None))
    return tuple(Sides(left[part], right[part]) for part in split)


def test_train__continues_after_a_kill_with_the_same_bytes(tmp_path, monkeypatch):
    sides, test = problem()
    whole = Training(starts([1, 2, 3], 8, 24), 12, 5, 3)
    train(whole, sides, test, 15.0, 1e-2, tmp_path / "whole")
    assert not (tmp_path / "whole").exists()

    monkeypatch.setattr(training, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    real, calls = training.gradient, iter(range(1, 100))

    def dies(*given):
        if next(calls) == 8:
            raise KeyboardInterrupt
        return real(*given)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(training, "gradient", dies)
        train(Training(starts([1, 2, 3], 8, 24), 12, 5, 3), sides, test, 15.0, 1e-2, tmp_path / "work")
    again = Training(starts([1, 2, 3], 8, 24), 12, 5, 3)
    train(again, sides, test, 15.0, 1e-2, tmp_path / "work")
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


def test_train__stops_at_a_loss_that_is_not_finite(tmp_path):
    sides, test = problem()
    sides.left[0, 0, 0, 0] = torch.inf
    with pytest.raises(ValueError, match="not finite at step 2"):
        train(Training(starts([1, 2, 3], 8, 24), 4, 2, 3), sides, test, 15.0, 1e-2, tmp_path)
