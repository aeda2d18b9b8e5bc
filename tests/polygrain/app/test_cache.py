from pathlib import Path

import pytest

from polygrain.app import cache


def test_place__by_source_and_model_for_the_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    place = cache.place(Path("photos"), "abc")
    assert place == cache.place(tmp_path / "photos", "abc")
    assert len({place, cache.place(Path("photos"), "def"), cache.place(Path("others"), "abc")}) == 3
    assert place.parent == tmp_path / "cache/polygrain" and place.parent.stat().st_mode & 0o777 == 0o700


def test_place__refuses_a_folder_that_others_may_write_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "polygrain").mkdir()
    (tmp_path / "polygrain").chmod(0o777)
    with pytest.raises(ValueError, match="others may write to"):
        cache.place(Path("photos"), "abc")
