from pathlib import Path
from unittest.mock import Mock

import pytest

from polygrain.collection import cache


def test_place__by_source_and_model_for_the_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    place = cache.place(Path("photos"), "abc")
    assert place == cache.place(tmp_path / "photos", "abc")
    assert len({place, cache.place(Path("photos"), "def"), cache.place(Path("others"), "abc")}) == 3
    assert place.parent == tmp_path / "cache/polygrain" and place.parent.stat().st_mode & 0o777 == 0o700


def test_place__without_a_home_one_sentence_names_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError("Could not determine home directory.")))
    with pytest.raises(ValueError, match="XDG_CACHE_HOME"):
        cache.place(tmp_path, "abc")
