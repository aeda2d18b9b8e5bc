import logging

import pytest

from polygrain.runner import progress as module
from polygrain.runner.progress import Rounds, duration, progress


@pytest.fixture
def clock(monkeypatch):
    """A clock that tests set forward."""

    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_progress__passes_items_on_and_logs_what_is_measured(caplog, monkeypatch):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0)
    monkeypatch.setattr(module.gpu, "use", lambda: {"gpu_percent": 87.0})
    with caplog.at_level(logging.INFO):
        assert list(progress([0, 1], "fitting", measure=lambda done: {"loss": 1 / (3 * done)})) == [0, 1]
    assert "fitting: 1 of 2" in caplog.text and "s left" in caplog.text
    assert [record.getMessage().split("it/s, ")[1] for record in caplog.records] == [
        "loss 0.3333, gpu_percent 87",
        "loss 0.1667, gpu_percent 87",
    ]


def test_rounds__time_left_is_that_of_all_rounds(clock, caplog, monkeypatch):
    """Two of four rounds were done before; each item takes 10 s, and 40 s pass between two rounds."""
    monkeypatch.setattr(module.gpu, "use", dict)
    rounds, said = Rounds("epoch", 4, "batch", 4, before=2), []
    with caplog.at_level(logging.INFO):
        for number in (2, 3):
            for item in rounds.over(range(4), number, lambda done: {"loss": done}):
                clock.now += 10
                assert item in range(4)
            clock.now += 40
            said.append(rounds.line(number, values={"loss": 0.5, "criterion": 1e-5}))
    lines = [record.getMessage() for record in caplog.records]
    # A quarter of a round took 10 s: the seven others, 70 s. At its end the round has taken 80 s: so will the last.
    assert lines[0] == "epoch 3/4: 1 of 4, 70 s left, 0.100 batch/s, loss 1"
    assert lines[3] == "epoch 3/4: 4 of 4, 40 s left, 0.100 batch/s, loss 4"
    assert said[0] == "epoch 3/4: 4 of 4, 80 s left, 0.100 batch/s, loss 0.5, criterion 1e-05"
    assert said[1] == "epoch 4/4: 4 of 4, 0 s left, 0.100 batch/s, loss 0.5, criterion 1e-05"
    assert lines[4] == "epoch 4/4: 1 of 4, 54 s left, 0.100 batch/s, loss 1"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (89, "89 s"), (90, "2 min"), (5399, "1 h 30 min"), (11100, "3 h 05 min")]
)
def test_duration__as_people_say_it(seconds, text):
    assert duration(float(seconds)) == text
