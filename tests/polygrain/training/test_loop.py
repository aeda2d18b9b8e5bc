import math

import pytest
import torch
from torch import nn

from polygrain.training import checkpoint
from polygrain.training.loop import Loader, Schedule, batches, best, fit


def problem(learning_rate=0.05):
    """Least squares with a batch norm (a buffer that must survive) and a draw in every step."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    optimizer = torch.optim.Adam(module.parameters(), learning_rate)
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(1))

    def step(batch, generator):
        noise = torch.randn(len(batch.rows), 4, generator=generator)
        return {"loss": (module(batch.content + 0.1 * noise).squeeze(1) - x[batch.rows].sum(1)).square().mean()}

    return module, optimizer, Loader(50, 8, lambda epoch: x.__getitem__), step


def train(folder, epochs, step_wrapper=None, watched=None):
    """`watched(module)` gives what is called after each epoch."""
    module, optimizer, loader, step = problem()
    if step_wrapper:
        step = step_wrapper(step)
    schedule = Schedule(epochs, 1.0, 0.0)
    history = fit(module, optimizer, schedule, loader, step, 7, folder, watched and watched(module))
    return module, history


class Killed(BaseException):
    pass


def at_call(number, change):
    """A wrapper for steps: what call `number` returns, counted from 1, goes through `change`."""

    def wrap(step):
        calls = 0

        def counted(batch, generator):
            nonlocal calls
            calls += 1
            values = step(batch, generator)
            return change(values) if calls == number else values

        return counted

    return wrap


def kill(values):
    raise Killed


@pytest.mark.parametrize("after", [3, 7, 20, 27])
def test_fit__continued_after_a_kill_ends_with_the_same_bytes(tmp_path, after):
    whole, history = train(tmp_path / "whole", 5)
    with pytest.raises(Killed):
        train(tmp_path / "killed", 5, step_wrapper=at_call(after + 1, kill))
    again, continued = train(tmp_path / "killed", 5)
    assert continued == history
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


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


def test_fit__minimises(tmp_path):
    _, history = train(tmp_path, 12)
    assert history[-1]["loss"] < 0.5 * history[0]["loss"]
    assert [row["epoch"] for row in history] == list(range(1, 13))


def test_fit__a_loss_that_is_not_finite_stops_and_keeps_the_last_good_state(tmp_path):
    spoil = at_call(9, lambda values: {"loss": values["loss"] * math.nan})
    with pytest.raises(
        ValueError, match=r"loss became nan in epoch 2; the state after epoch 1 is kept in .*lower the learning rate"
    ):
        train(tmp_path, 4, step_wrapper=spoil)
    module, optimizer, *_ = problem()
    assert len(checkpoint.resume(tmp_path, module, optimizer)) == 1
    assert all(torch.isfinite(parameter).all() for parameter in module.parameters())


def test_fit__refuses_a_batch_that_leaves_a_process_without_rows(tmp_path, monkeypatch):
    """50 rows in batches of 8 end with one of 10: 8 is the smallest."""
    monkeypatch.setenv("WORLD_SIZE", "9")
    with pytest.raises(ValueError, match=r"8 rows in the smallest batch for 9 processes.*start 8 at most"):
        train(tmp_path, 1)
    assert not list(tmp_path.iterdir())


def test_batches__cover_everything_once_without_a_tiny_rest():
    for count in range(1, 60):
        pieces = batches(count, 8, torch.Generator().manual_seed(count))
        assert sorted(torch.cat(pieces).tolist()) == list(range(count))
        assert all(4 <= len(piece) < 12 for piece in pieces) or len(pieces) == 1


def test_factor__warms_up_then_follows_a_cosine():
    schedule = Schedule(epochs=10, warmup=2.0, floor=0.1)
    assert schedule.factor(0) == 0
    assert schedule.factor(1) == 0.5
    assert schedule.factor(2) == 1
    assert schedule.factor(6) == pytest.approx(0.55)
    assert schedule.factor(10) == pytest.approx(0.1)


def scripted(values, states):
    """A watch that says the next of `values` and notes the module as it is then."""
    rest = iter(values)

    def watched(module):
        def watch():
            states.append({name: tensor.clone() for name, tensor in module.state_dict().items()})
            return next(rest)

        return watch

    return watched


def same(module, state):
    return all(torch.equal(tensor, state[name]) for name, tensor in module.state_dict().items())


@pytest.mark.parametrize(
    ("values", "kept"), [([0.1, 0.5, 0.3, 0.5, 0.2], 1), ([0.1, 0.2, 0.3, 0.4, 0.5], 4), ([0.5, 0.1, 0.2, 0.3, 0.4], 0)]
)
def test_fit__ends_as_after_the_best_epoch(tmp_path, values, kept):
    states = []
    module, history = train(tmp_path / "watched", 5, watched=scripted(values, states))
    assert [row["criterion"] for row in history] == values and best(history) == kept
    assert [same(module, state) for state in states] == [epoch == kept for epoch in range(5)]
    last, unwatched = train(tmp_path / "unwatched", 5)
    assert same(last, states[-1])
    assert [row["loss"] for row in history] == [row["loss"] for row in unwatched]


@pytest.mark.parametrize("values", [[0.1, 0.5, 0.3, 0.4, 0.2], [0.1, 0.2, 0.3, 0.5, 0.4]])
def test_fit__the_best_epoch_outlives_a_kill(tmp_path, values):
    whole, history = train(tmp_path / "whole", 5, watched=scripted(values, []))
    with pytest.raises(Killed):
        train(tmp_path / "killed", 5, at_call(20, kill), scripted(values, []))
    again, continued = train(tmp_path / "killed", 5, watched=scripted(values[3:], []))
    assert continued == history and same(again, whole.state_dict())


def test_fit__a_finished_run_taken_up_again_gives_the_best_epoch(tmp_path):
    whole, history = train(tmp_path, 3, watched=scripted([0.1, 0.5, 0.3], []))
    again, continued = train(tmp_path, 3, watched=scripted([], []))
    assert continued == history and same(again, whole.state_dict())


def test_fit__names_a_best_epoch_that_is_damaged(tmp_path):
    train(tmp_path, 2, watched=scripted([0.5, 0.1], []))
    (tmp_path / "best.safetensors").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"best.safetensors is missing or damaged.*delete .* to start this stage"):
        train(tmp_path, 2, watched=scripted([], []))


def test_fit__a_continued_run_tells_the_epochs_of_before(tmp_path, caplog):
    """So that curves are whole: each line has the numbers of its epoch, to the digits that are shown."""
    with caplog.at_level("INFO"):
        with pytest.raises(Killed):
            train(tmp_path, 4, at_call(13, kill))
        first = [line.partition(": ")[2].rsplit(", ")[-1] for line in caplog.messages if line.startswith("epoch ")]
        caplog.clear()
        _, history = train(tmp_path, 4)
    told = [line for line in caplog.messages if line.startswith("epoch ")]
    assert [line.split(":")[0] for line in told] == ["epoch 1/4", "epoch 2/4", "epoch 3/4", "epoch 4/4"]
    assert [line.rsplit(", ")[-1] for line in told] == [f"loss {row['loss']:.4g}" for row in history]
    assert len(first) == 2 and first == [line.rsplit(", ")[-1] for line in told[:2]]
