"""Share and values, from the very lines the stages log, and where they are shown."""

import logging

import pytest

from pipeline import progress
from pipeline.progress import Point, StageProgress, read
from polygrain.runner import progress as logged


@pytest.mark.parametrize(
    ("line", "point"),
    [
        ("epoch 3/4: 50 of 100, 30 s left, 12.3 batch/s, loss 0.5, gpu_percent 87", Point(True, 0.625)),
        ("epoch 3/4: loss 1.5e-05, accuracy 0.5", Point(True, 0.75)),
        ("sigma 0.1: 250 of 1000, 20.0 step/s, loss 2", Point(False, 0.25)),
        ("sop-0-1, validation 2/6: 50 of 50, map_at_r 0.2", Point(True, 2 / 6)),
        ("epoch 3/3: loss -1.2.3, accuracy 1", Point(True, 1)),
        ("images@digits: 500 images (1.2 s)", None),
        ("", None),
    ],
)
def test_read__the_share(line, point):
    assert read(line) == point


def test_read__understands_what_stages_log(monkeypatch, caplog):
    monkeypatch.setattr(logged, "SECONDS_BETWEEN_LINES", 0)
    monkeypatch.setattr(logged.gpu, "use", lambda: {"gpu_gib": 12.5})
    rounds = logged.Rounds("epoch", 8, "batch", 2, before=1)
    with caplog.at_level(logging.INFO):
        list(rounds.over(range(8), 1, lambda done: {"loss": 2.0**-done, "criterion": -1 / 3}))
    points = [read(record.getMessage()) for record in caplog.records]
    assert [point.share for point in points] == pytest.approx([(8 + done) / 16 for done in range(1, 9)])


@pytest.fixture
def bars(monkeypatch):
    """Every state of the bar, as the server is told; no wait between two."""
    states = []
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_UPDATES", 0)
    monkeypatch.setattr(
        progress, "create_progress_artifact", lambda p, key, description: states.append((key, p)) or key
    )
    monkeypatch.setattr(progress, "update_progress_artifact", lambda bar, p, description: states.append((bar, p)))
    return states


def test_stage_progress__one_bar_renewed_in_place(bars):
    """What is counted between two epochs is a part of them: the criterion goes through a sample."""
    shown = StageProgress("adaptor@k8")
    count = "sample: 1 of 4, 5.0 batch/s"
    for line in ("other words", "epoch 1/2: loss 1", count, "epoch 2/2: loss 1"):
        shown.add(line)
    shown.finish("ran")
    assert bars == [("progress-adaptor-k8", percent) for percent in (50, 100, 100)]


def test_stage_progress__a_short_stage_has_none(bars):
    shown = StageProgress("a")
    shown.add("Running stage 'a':")
    shown.finish("ran")
    assert bars == []
