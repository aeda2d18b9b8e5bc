import pytest
import torch
from torch import nn

from polygrain.gsp.folds.early_stopping import Stopping, best, fit, is_over, rate_factor

PARAMS = Stopping(every=2, patience=3, least_gain=0.01, plateau=2, factor=0.5, longest=100)


def rows(*scores):
    return [{"step": 2 * (i + 1), "loss": 1.0, "score": score, "rate": 1.0} for i, score in enumerate(scores)]


def test_best__takes_the_first_of_what_is_hardly_better():
    assert best(rows(0.3, 0.305, 0.32, 0.1), 0.01) == 2
    assert best(rows(0.3, 0.305), 0.01) == 0


def test_is_over__after_the_patience_or_the_steps():
    assert not is_over(rows(), PARAMS) and not is_over(rows(0.5, 0.4, 0.4), PARAMS)
    assert is_over(rows(0.5, 0.4, 0.4, 0.4), PARAMS)
    assert is_over(rows(0.1), PARAMS.model_copy(update={"longest": 2}))


def test_rate_factor__halves_at_every_plateau_that_was_waited_out():
    assert [rate_factor(rows(*[0.5] * n), PARAMS) for n in range(1, 7)] == [1, 1, 0.5, 0.5, 0.25, 0.25]
    assert rate_factor(rows(0.1, 0.2, 0.3, 0.4), PARAMS) == 1
    assert rate_factor(rows(*[0.5] * 9), PARAMS.model_copy(update={"plateau": None})) == 1


class Killed(BaseException):
    pass


class Train:
    """A number that is pulled to 3; validation is best when it passes 2."""

    def __init__(self, fail_at=None):
        torch.manual_seed(0)
        self.current, self.fail_at, self.numbers = nn.Linear(1, 1, bias=False), fail_at, []
        nn.init.zeros_(self.current.weight)
        self.optimizer = torch.optim.Adam(self.current.parameters(), 0.2)

    def step(self, number, generator):
        if number == self.fail_at:
            raise Killed
        self.numbers.append(number)
        noise = 0.1 * torch.randn((), generator=generator) + 0.1 * torch.rand(())  # the second draws as dropout does
        return (self.current.weight - 3 + noise).square().sum()

    def validate(self):
        return 1 - abs(self.current.weight.item() - 2)

    def run(self, folder, **changes):
        params = PARAMS.model_copy(update={"least_gain": 0.0} | changes)
        return fit(self.current, self.optimizer, params, self.step, self.validate, 5, folder)


def test_fit__keeps_the_best_state_and_stops_by_patience(tmp_path):
    train = Train()
    history = train.run(tmp_path)
    scores = [row["score"] for row in history]
    assert train.validate() == pytest.approx(max(scores), abs=1e-6) and scores[-1] < max(scores)
    assert len(history) == scores.index(max(scores)) + 1 + 3 and history[-1]["step"] < 100
    assert train.numbers == list(range(history[-1]["step"]))


def test_fit__continues_after_a_kill_with_the_same_bytes(tmp_path):
    whole, resumed = Train(), Train()
    expected = whole.run(tmp_path / "whole", longest=21)
    with pytest.raises(Killed):
        Train(fail_at=9).run(tmp_path / "killed", longest=21)
    torch.rand(3)
    assert resumed.run(tmp_path / "killed", longest=21) == expected
    assert torch.equal(resumed.current.weight, whole.current.weight) and resumed.numbers[0] == 8


def test_fit__says_when_the_loss_is_not_finite(tmp_path):
    train = Train()
    train.step = lambda number, generator: train.current.weight.sum() * torch.nan
    with pytest.raises(ValueError, match="run-0"):
        train.run(tmp_path / "run-0")
