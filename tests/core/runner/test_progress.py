import logging

from stages.core.runner import progress as module
from stages.core.runner.progress import progress


def test_progress__passes_items_on_and_logs_plain_lines(caplog, monkeypatch):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0)
    with caplog.at_level(logging.INFO):
        assert list(progress([1, 2, 3], "reading", unit="file")) == [1, 2, 3]
    assert "reading: 2 of 3" in caplog.text and "s left" in caplog.text and "file/s" in caplog.text


def test_progress__without_a_length(caplog, monkeypatch):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0)
    with caplog.at_level(logging.INFO):
        assert list(progress(iter("ab"), "reading")) == ["a", "b"]
    assert "reading: 2, " in caplog.text
