import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from stages.core import adaptation_training
from stages.core.adaptation import Sides, starts
from stages.core.adaptation_training import Training, train
from stages.core.asymmetric_recall import asymmetric_recall


def problem(runs: int = 3) -> tuple[Sides, Sides]:
    """Two noisy views of shared latents through one random map each: what can be learned is which directions agree."""
    generator = torch.Generator().manual_seed(0)
    latents, noise = torch.randn(runs, 1, 160, 6, generator=generator), torch.randn(2, 6, 24, generator=generator)
    nuisance = torch.randn(2, runs, 1, 160, 10, generator=generator) @ torch.randn(10, 24, generator=generator)
    left, right = (latents @ noise[0] + 4 * part for part in nuisance)
    split = (slice(None), slice(None), slice(0, 120)), (slice(None), slice(None), slice(120, None))
    return tuple(Sides(left[part], right[part]) for part in split)


def plain(weights: torch.Tensor, left: torch.Tensor, right: torch.Tensor, sigma: float, steps: int) -> torch.Tensor:
    """One run after another, as one would write it."""
    weights = weights.clone().requires_grad_()
    optimizer = torch.optim.Adam([weights], lr=1e-2)
    target = torch.arange(len(left))
    for _ in range(steps):
        similarity = sigma * normalize(torch.relu(left @ weights.T)) @ normalize(torch.relu(right @ weights.T)).T
        loss = (cross_entropy(similarity, target) + cross_entropy(similarity.T, target)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return weights.detach()


def test_train__equals_one_run_after_another(tmp_path):
    sides, test = problem()
    state = Training(starts([1, 2, 3], 16, 24), 25, 10, 5)
    train(state, sides, test, 15.0, 1e-2, tmp_path)
    assert state.evaluated == [10, 20, 25]
    for run, start in enumerate(starts([1, 2, 3], 16, 24)):
        expected = plain(start, sides.left[run, 0], sides.right[run, 0], 15.0, 25)
        torch.testing.assert_close(state.weights[run].detach(), expected, rtol=1e-3, atol=1e-4)
        x, y = (normalize(torch.relu(side[run, 0] @ expected.T)) for side in test)
        torch.testing.assert_close(state.recalls[-1, run].numpy(), asymmetric_recall(x @ y.T, range(1, 6)))
    assert (state.losses[-1] < state.losses[0]).all()


def test_train__equals_one_run_after_another_to_the_last_of_150_steps(tmp_path):
    """In double precision; in single, Adam turns the last bit of a gradient near zero into a step."""
    sides, test = (Sides(part.left.double(), part.right.double()) for part in problem(2))
    state = Training(starts([1, 2], 16, 24).double(), 150, 150, 5)
    train(state, sides, test, 15.0, 1e-2, tmp_path)
    for run, start in enumerate(starts([1, 2], 16, 24).double()):
        expected = plain(start, sides.left[run, 0], sides.right[run, 0], 15.0, 150)
        torch.testing.assert_close(state.weights[run].detach(), expected, rtol=1e-4, atol=1e-6)
        x, y = (normalize(torch.relu(side[run, 0] @ expected.T)) for side in test)
        assert state.recalls[-1, run].tolist() == asymmetric_recall(x @ y.T, range(1, 6)).tolist()


def test_train__recall_rises_and_a_large_sigma_is_better(tmp_path):
    sides, test = problem()
    final = {}
    for sigma in (1.0, 15.0):
        state = Training(starts([1, 2, 3], 64, 24), 40, 40, 1)
        train(state, sides, test, sigma, 1e-2, tmp_path / str(sigma))
        final[sigma] = state.recalls[-1].mean().item()
    units = [normalize(side[:, 0], dim=2) for side in test]
    before = sum(asymmetric_recall(x @ y.T, [1])[0] for x, y in zip(*units, strict=True)) / 3
    assert final[15.0] > before + 0.1 and final[15.0] > final[1.0]


def test_train__continues_after_a_kill_with_the_same_bytes(tmp_path, monkeypatch):
    sides, test = problem()
    whole = Training(starts([1, 2, 3], 8, 24), 12, 5, 3)
    train(whole, sides, test, 15.0, 1e-2, tmp_path / "whole")
    assert not (tmp_path / "whole").exists()

    monkeypatch.setattr(adaptation_training, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    real, calls = adaptation_training.gradient, []

    def dies(*arguments):
        calls.append(1)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(adaptation_training, "gradient", dies)
    with pytest.raises(KeyboardInterrupt):
        train(Training(starts([1, 2, 3], 8, 24), 12, 5, 3), sides, test, 15.0, 1e-2, tmp_path / "work")
    monkeypatch.setattr(adaptation_training, "gradient", real)
    again = Training(starts([1, 2, 3], 8, 24), 12, 5, 3)
    train(again, sides, test, 15.0, 1e-2, tmp_path / "work")
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


def test_train__stops_at_a_loss_that_is_not_finite(tmp_path):
    sides, test = problem()
    sides.left[0, 0, 0, 0] = torch.inf
    with pytest.raises(ValueError, match=r"a loss is not finite at step 2: lower learning_rate or sigma"):
        train(Training(starts([1, 2, 3], 8, 24), 4, 2, 3), sides, test, 15.0, 1e-2, tmp_path)
