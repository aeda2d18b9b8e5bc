import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from polygrain.app.export import folder
from polygrain.app.export.folder import Written
from polygrain.cli.main import app, main


def test_export__prints_each_difference(tmp_path, monkeypatch):
    calls = []

    def write(*words: object) -> list[Written]:
        calls.append(words)
        return [Written("model.pt2", 13_200_000, 0.0), Written("model.onnx", 9_000, 1.25e-7)]

    monkeypatch.setattr(folder, "write", write)
    words = ["export", "some/choice", "-o", str(tmp_path / "out"), "--uint8", "--task", "dots"]
    done = CliRunner().invoke(app, words)
    assert calls == [(Path("some/choice"), tmp_path / "out", True, "dots")]
    assert done.output.splitlines() == [
        "model.pt2       13.2 MB, differs from the model by at most 0.0e+00",
        "model.onnx       0.0 MB, differs from the model by at most 1.2e-07",
        f"{tmp_path / 'out/README.md'} says how to load them",
    ]


def test_export__a_missing_model_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["polygrain", "export", str(tmp_path / "none"), "-o", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match=r"^error: .*config\.json is missing or damaged .*$"):
        main()
    assert not list(tmp_path.iterdir())
