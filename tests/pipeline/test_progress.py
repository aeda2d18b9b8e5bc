"""Share, text and curves, from the very lines the stages log."""

import logging

import pytest

from pipeline import progress as module
from pipeline.progress import Point, Progress
from polygrain.runner import progress as logged


@pytest.mark.parametrize(
    ("line", "share", "curves"),
    [
        (
            "epoch 3/4: 50 of 100, 30 s left, 12.3 batch/s, loss 0.5, gpu_percent 87",
            0.625,
            {"loss": Point(2.5, 250, 0.5), "gpu_percent": Point(2.5, 250, 87)},
        ),
        ("epoch 3/4: loss 1.5e-05, accuracy 0.5", 0.75, {"loss": Point(3, 3, 1.5e-5), "accuracy": Point(3, 3, 0.5)}),
        ("digits: 250 of 1000, 75 s left, 20.0 image/s", 0.25, {}),
        ("sigma 0.1: 250 of 1000, 20.0 step/s, loss 2", 0.25, {"sigma 0.1 loss": Point(0.25, 250, 2)}),
        ("sop-0-1, validation 2/6: 50 of 50, map_at_r 0.2", 2 / 6, {"sop-0-1 map_at_r": Point(2, 100, 0.2)}),
        ("epoch 1/0: loss 1", 1.0, {"loss": Point(1, 1, 1)}),
        ("epoch 9/3: loss -1.2.3, accuracy 1", 1.0, {"accuracy": Point(9, 9, 1)}),
    ],
)
def test_hear__share_and_what_was_measured(line, share, curves):
    progress = Progress()
    assert progress.hear(line) == curves
    assert progress.share == pytest.approx(share)
    assert progress.text == line
    assert progress.curves == {name: [point] for name, point in curves.items()}


@pytest.mark.parametrize(
    "line",
    [
        "Running stage 'a':",
        "3 of 4 images rejected",
        "images@digits: 500 images (1.2 s)",
        "continues after epoch 2 (x/checkpoint.safetensors)",
        "",
    ],
)
def test_hear__other_lines_say_nothing(line):
    progress = Progress()
    assert progress.hear(line) is None
    assert progress.share == 0 and progress.curves == {}


def test_hear__a_count_between_two_epochs_is_a_part_of_them():
    """The criterion goes through a sample after each epoch; before and after all epochs a count speaks for itself."""
    progress, shares = Progress(), []
    count = "sample: 1 of 2, 5.0 batch/s, gpu_percent 80"
    for line in (count, "epoch 1/2: loss 1", count, "epoch 2/2: loss 1"):
        progress.hear(line)
        shares.append(progress.share)
    assert len(progress.curves["sample gpu_percent"]) == 1
    progress.hear(count)
    assert [*shares, progress.share] == [0.5, 0.5, 0.5, 1, 0.5]


def test_hear__a_stage_that_is_tried_again_begins_its_curve_anew():
    progress = Progress()
    for number in (1, 2, 3, 1, 2):
        progress.hear(f"epoch {number}/3: loss 0.{number}")
    assert progress.curves == {"loss": [Point(1, 1, 0.1), Point(2, 2, 0.2)]}


def test_hear__a_long_curve_keeps_its_ends_and_every_second_point(monkeypatch):
    monkeypatch.setattr(module, "MOST_POINTS", 10)
    progress = Progress()
    for number in range(1, 1001):
        progress.hear(f"epoch {number}/1000: loss {number}")
        kept = [point.value for point in progress.curves["loss"]]
        assert len(kept) <= 10 and kept[0] == 1 and kept[-1] == number and kept == sorted(set(kept))


def test_hear__understands_what_stages_log(monkeypatch, caplog):
    """The two files cannot import each other; this is what keeps them speaking the same language."""
    monkeypatch.setattr(logged, "SECONDS_BETWEEN_LINES", 0)
    monkeypatch.setattr(logged.gpu, "use", lambda: {"gpu_gib": 12.5})
    course = logged.Course("epoch", 8, "batch", 2, before=1)
    with caplog.at_level(logging.INFO):
        list(course.over(range(8), 1, lambda done: {"loss": 2.0**-done, "criterion": -1 / 3}))
    progress = Progress()
    found = [(progress.hear(record.getMessage()), progress.share) for record in caplog.records]
    assert [share for _, share in found] == pytest.approx([(8 + done) / 16 for done in range(1, 9)])
    assert found[-1][0]["loss"] == Point(2, 16, 0.003906) and found[0][0]["gpu_gib"] == Point(1 + 1 / 8, 9, 12.5)
    assert found[0][0]["criterion"].value == pytest.approx(-1 / 3, rel=1e-3)
    assert "batch/s" in progress.text and "left" in progress.text
