"""A folder that someone else could have prepared is refused."""

import os
import stat

import pytest

from pipeline import private


def test_own__is_made_for_this_user_alone(tmp_path):
    made = private.own(tmp_path / "a" / "b")
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    made.chmod(0o755)  # as older versions left it
    assert stat.S_IMODE(private.own(made).stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o720, 0o702])
def test_own__where_others_write_is_refused(tmp_path, mode):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(ValueError, match=rf"others may write to {folder} \(mode {mode:o}\): .*`chmod go-w {folder}`"):
        private.own(folder)


def test_own__another_users_is_refused(tmp_path, monkeypatch):
    (tmp_path / "planted").mkdir(mode=0o700)
    owner = os.getuid()
    monkeypatch.setattr(private.os, "getuid", lambda: owner + 1)
    with pytest.raises(ValueError, match=rf"planted belongs to user {owner}, not to you \({owner + 1}\)"):
        private.own(tmp_path / "planted")


def test_own__a_link_or_a_file_is_refused(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").touch(0o600)
    for name in ("link", "dangling"):
        with pytest.raises(ValueError, match=rf"{name} is a link: delete it"):
            private.own(tmp_path / name)
    with pytest.raises(ValueError, match=r"file is no folder: delete it"):
        private.own(tmp_path / "file")
    assert not (tmp_path / "nowhere").exists()
