import math

import pytest
import torch
from torch import nn

from polygrain.runner import inputs
from polygrain.training import checkpoint
from polygrain.training.loop import Loader, Schedule, batches, fit


def problem():
    """Least squares with a batch norm, whose buffers must survive, and random noise in every step."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    optimizer = torch.optim.Adam(module.parameters(), 0.05)
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(1))

    def step(batch, generator):
        noise = torch.randn(len(batch.rows), 4, generator=generator)
        return {"loss": (module(batch.content + 0.1 * noise).squeeze(1) - x[batch.rows].sum(1)).square().mean()}

    return module, optimizer, Loader(50, 8, lambda epoch: x.__getitem__), step


def train(folder, epochs, wrap=lambda step: step, scores=None, states=None):
    """`scores` are the criterion of the epochs to come; `states` gets the module after each."""
    module, optimizer, loader, step = problem()
    rest = iter(scores or [])

    def watch():
        if states is not None:
            states.append({name: tensor.clone() for name, tensor in module.state_dict().items()})
        return next(rest)

    history = fit(
        module, optimizer, Schedule(epochs, 1.0, 0.0), loader, wrap(step), 7, folder, None if scores is None else watch
    )
    return module, history


class Killed(BaseException):
    pass


def at_call(number, change):
    """A wrapper for steps: what call `number` returns, counted from 1, goes through `change`."""

    def wrap(step):
        calls = iter(range(1, 10**6))
        return lambda *given: change(step(*given)) if next(calls) == number else step(*given)

    return wrap


def kill(values):
    raise Killed


def same(module, state):
    return all(torch.equal(tensor, state[name]) for name, tensor in module.state_dict().items())


@pytest.mark.parametrize("after", [3, 7, 27])
@pytest.mark.parametrize("scores", [None, [0.1, 0.5, 0.3, 0.4, 0.2]])
def test_fit__continued_after_a_kill_ends_with_the_same_bytes(tmp_path, after, scores):
    whole, history = train(tmp_path / "whole", 5, scores=scores)
    with pytest.raises(Killed):
        train(tmp_path / "killed", 5, at_call(after + 1, kill), scores)
    again, continued = train(tmp_path / "killed", 5, scores=scores and scores[after // 6 :])
    assert continued == history and same(again, whole.state_dict())
    again, continued = train(tmp_path / "killed", 5, scores=scores and [])  # after its last epoch
    assert continued == history and same(again, whole.state_dict())


def test_fit__prepares_every_epoch_and_numbers_the_steps_on(tmp_path):
    """Also where it continues: what a step sees does not depend on when the run was killed."""
    seen = []

    def course(epochs):
        module, optimizer, loader, step = problem()

        def prepare(epoch):
            seen.append(f"epoch {epoch}")
            return loader.prepare(epoch)

        def watched(batch, generator):
            seen.append(batch.number)
            assert torch.equal(batch.content, loader.prepare(0)(batch.rows))
            return step(batch, generator)

        fit(module, optimizer, Schedule(epochs, 0.0, 1.0), Loader(50, 8, prepare), watched, 7, tmp_path)

    course(1)
    course(2)
    assert seen == ["epoch 0", *range(6), "epoch 1", *range(6, 12)]


def test_fit__a_loss_that_is_not_finite_stops_and_keeps_the_last_good_state(tmp_path):
    spoil = at_call(9, lambda values: {"loss": values["loss"] * math.nan})
    with pytest.raises(ValueError, match=r"nan in epoch 2.*learning rate"):
        train(tmp_path, 4, spoil)
    module, optimizer, *_ = problem()
    assert len(checkpoint.resume(tmp_path, module, optimizer)) == 1
    assert all(torch.isfinite(parameter).all() for parameter in module.parameters())


@pytest.mark.parametrize(("scores", "best"), [([0.1, 0.5, 0.3, 0.5, 0.2], 1), ([0.1, 0.2, 0.5], 2), ([0.5, 0.1], 0)])
def test_fit__ends_as_after_the_best_epoch(tmp_path, scores, best):
    states = []
    module, history = train(tmp_path / "watched", len(scores), scores=scores, states=states)
    assert [row["criterion"] for row in history] == scores
    assert [same(module, state) for state in states] == [epoch == best for epoch in range(len(scores))]
    last, unwatched = train(tmp_path / "unwatched", len(scores))
    assert same(last, states[-1]) and [row["loss"] for row in history] == [row["loss"] for row in unwatched]


def test_fit__a_continued_run_logs_the_epochs_before(tmp_path, caplog):
    """So that curves are whole: each line has the numbers of its epoch."""
    with pytest.raises(Killed):
        train(tmp_path, 4, at_call(13, kill))
    with caplog.at_level("INFO"):
        _, history = train(tmp_path, 4)
    lines = [line for line in caplog.messages if line.startswith("epoch ")]
    assert [line.split(":")[0] for line in lines] == ["epoch 1/4", "epoch 2/4", "epoch 3/4", "epoch 4/4"]
    assert [line.rsplit(", ")[-1] for line in lines] == [f"loss {row['loss']:.4g}" for row in history]


def test_fit__says_after_its_epoch_what_has_changed_of_the_inputs(tmp_path, monkeypatch, caplog):
    file = tmp_path / "labels.csv"
    file.write_text("one")
    monkeypatch.setattr(inputs, "watch", inputs.Watch(tmp_path, inputs.Reads([file.name], {}, [])))
    train(tmp_path / "work", 4, at_call(9, lambda values: file.write_text("two") and values))
    assert ["labels.csv changed" in line for line in caplog.messages].count(True) == 1


def test_batches__cover_everything_once_without_a_tiny_rest():
    for count in range(1, 60):
        pieces = batches(count, 8, torch.Generator().manual_seed(count))
        assert sorted(torch.cat(pieces).tolist()) == list(range(count))
        assert all(4 <= len(piece) < 12 for piece in pieces) or len(pieces) == 1


def test_factor__warms_up_then_follows_a_cosine():
    schedule = Schedule(epochs=10, warmup=2.0, floor=0.1)
    assert [schedule.factor(epoch) for epoch in (0, 1, 2, 6, 10)] == pytest.approx([0, 0.5, 1, 0.55, 0.1])
