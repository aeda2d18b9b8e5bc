"""Share, rate and time left, from the very lines the stages log."""

import logging

import pytest

from pipeline.progress import Progress, duration
from stages.core.runner import progress as logged


@pytest.mark.parametrize(
    ("lines", "share", "text"),
    [
        (["epoch 3/4: 50 of 100, 5 s left, 12.3 batch/s"], 0.625, "epoch 3 of 4, 50 of 100, 12.3 batch/s, 30 s left"),
        (["epoch 3/4: loss 0.1234, accuracy 0.5"], 0.75, "epoch 3 of 4, 17 s left"),
        (["digits: 250 of 1000, 75 s left, 20.0 image/s"], 0.25, "250 of 1000, 20.0 image/s, 2 min left"),
        (["epoch 4/4: loss 0.1"], 1.0, "epoch 4 of 4, 0 s left"),
        # Resumed at half: the quarter since then took the 50 s, so the last quarter takes 50 more.
        (["continues after epoch 2 (x/checkpoint.safetensors)", "epoch 3/4: loss 1"], 0.75, "epoch 3 of 4, 50 s left"),
        (["epoch 1/0: loss 1"], 1.0, "epoch 1 of 1, 0 s left"),
    ],
)
def test_hear__share_and_text(lines, share, text):
    progress = Progress(start=0)
    assert progress.hear(lines[-1] if len(lines) == 1 else lines[0], 50) == (len(lines) == 1)
    for line in lines[1:]:
        assert progress.hear(line, 50)
    assert progress.share == pytest.approx(share)
    assert progress.text == text


@pytest.mark.parametrize(
    "line", ["Running stage 'a':", "3 of 4 images rejected", "images@digits: 500 images (1.2 s)", ""]
)
def test_hear__other_lines_say_nothing(line):
    progress = Progress()
    assert not progress.hear(line)
    assert progress.share == 0


def test_hear__understands_what_stages_log(monkeypatch, caplog):
    """The two files cannot import each other; this is what keeps them speaking the same language."""
    monkeypatch.setattr(logged, "SECONDS_BETWEEN_LINES", 0)
    with caplog.at_level(logging.INFO):
        list(logged.progress(range(8), "epoch 2/2", unit="batch"))
    progress = Progress()
    shares = [progress.share for record in caplog.records if progress.hear(record.getMessage())]
    assert shares == pytest.approx([(8 + done) / 16 for done in range(1, 9)])
    assert "batch/s" in progress.text and "left" in progress.text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (89, "89 s"), (90, "2 min"), (5399, "90 min"), (11100, "3 h 05 min")]
)
def test_duration__as_people_say_it(seconds, text):
    assert duration(seconds) == (text if seconds != 5399 else "1 h 30 min")
