import pytest

from polygrain.training.history import read_history, write_history


def test_write__columns_and_header(tmp_path):
    write_history([{"epoch": 1, "loss": 0.25}], tmp_path, ["epoch", "loss"])
    assert (tmp_path / "history.csv").read_text() == "epoch,loss\n1,0.25\n"
    write_history([], tmp_path, ["epoch", "loss"])
    assert (tmp_path / "history.csv").read_text() == "epoch,loss\n"


def test_read__what_was_written(tmp_path):
    rows = [{"epoch": 1, "loss": 0.25, "accuracy": 0.5}, {"epoch": 2, "loss": 0.125, "accuracy": 1.0}]
    write_history(rows, tmp_path, ["epoch", "loss", "accuracy"])
    assert read_history(tmp_path) == rows
    write_history([], tmp_path, ["epoch", "loss"])
    assert read_history(tmp_path) == []


@pytest.mark.parametrize("text", [None, "epoch,loss\n1,low\n", "epoch,loss\n1\n"])
def test_read__missing_or_damaged(tmp_path, text):
    if text:
        (tmp_path / "history.csv").write_text(text)
    with pytest.raises(ValueError, match=r"history.csv is missing or damaged .*; delete .* and run the pipeline again"):
        read_history(tmp_path)
