import pytest

from polygrain.app.export import sentence_transformers
from tests.helpers.small import write_encoder


def test_write__what_others_wrote_stays(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/cat.jpg").touch()
    with pytest.raises(ValueError, match=r"cat\.jpg"):
        sentence_transformers.write(write_encoder(tmp_path / "encoder"), tmp_path / "out")


def test_write__a_folder_that_differs_is_not_left(tmp_path, monkeypatch):
    monkeypatch.setattr(sentence_transformers, "difference", lambda *_, **__: 2e-5)
    with pytest.raises(ValueError, match="differs"):
        sentence_transformers.write(write_encoder(tmp_path / "encoder"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
