import pytest

from polygrain.training.history import read_history, write_history

COLUMNS = ["epoch", "loss", "accuracy"]


@pytest.mark.parametrize("rows", [[], [{"epoch": 1, "loss": 0.25, "accuracy": 0.5}]])
def test_read__what_was_written(tmp_path, rows):
    write_history(rows, tmp_path, COLUMNS)
    assert (tmp_path / "history.csv").read_text() == "epoch,loss,accuracy\n" + "1,0.25,0.5\n" * len(rows)
    assert read_history(tmp_path) == rows


@pytest.mark.parametrize("text", [None, "epoch,loss\n1,low\n", "epoch,loss\n1\n"])
def test_read__missing_or_damaged(tmp_path, text):
    if text:
        (tmp_path / "history.csv").write_text(text)
    with pytest.raises(ValueError, match=r"history\.csv"):
        read_history(tmp_path)
