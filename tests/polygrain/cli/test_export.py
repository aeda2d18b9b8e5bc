import sys

import pytest

from polygrain.cli.main import main


def test_export__a_missing_model_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["polygrain", "export", str(tmp_path / "none"), "-o", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match=r"^error: .*config\.json is missing or damaged .*$"):
        main()
    assert not list(tmp_path.iterdir())
