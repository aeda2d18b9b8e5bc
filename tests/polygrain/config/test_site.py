"""Plain dvc keeps what it pickles in the clone, where nobody else can write."""

import shutil

import pytest
from dvc.repo import Repo

from polygrain.config.site import keep_site, site_of
from tests.helpers import toy


@pytest.fixture
def used(monkeypatch):
    """Where plain dvc keeps it."""
    monkeypatch.delenv("DVC_SITE_CACHE_DIR", raising=False)

    def used(folder) -> str:
        with Repo(str(folder)) as repo:
            return repo.site_cache_dir

    return used


def test_keep_site__plain_dvc_uses_a_private_folder_also_after_the_clone_has_moved(tmp_path, used):
    first = toy.make(tmp_path / "a, b#")
    (first / ".dvc/config.local").write_text("[cache]\n    dir = /elsewhere\n")
    keep_site(first)
    assert used(first).startswith(f"{first}/.dvc/site/")
    assert (first / ".dvc/site").stat().st_mode & 0o777 == 0o700
    second = tmp_path / "second"
    shutil.move(first, second)
    keep_site(second)
    assert used(second).startswith(f"{second}/.dvc/site/") and not first.exists()
    assert "dir = /elsewhere" in (second / ".dvc/config.local").read_text()


def test_keep_site__a_clone_in_a_path_that_is_not_ascii(tmp_path, used):
    """There `dvc remote add --local`, which writes the file anew, still works, and what it wrote stays."""
    clone = toy.make(tmp_path / "josé's clone")
    site = site_of(clone)
    try:
        keep_site(clone)
        assert used(clone).startswith(f"{site}/") and site.stat().st_mode & 0o777 == 0o700
        toy.run(clone, "dvc", "remote", "add", "--local", "team", str(tmp_path))
        before = (clone / ".dvc/config.local").read_text()
        keep_site(clone)
        assert (clone / ".dvc/config.local").read_text() == before and f"url = {tmp_path}" in before
    finally:
        shutil.rmtree(site)


def test_keep_site__refuses_a_folder_of_others_and_a_configuration_that_is_torn(tmp_path):
    for name in ("josé", "torn"):
        (tmp_path / name / ".dvc").mkdir(parents=True)
    site = site_of(tmp_path / "josé")
    site.symlink_to(tmp_path)
    try:
        with pytest.raises(ValueError, match="is not yours"):
            keep_site(tmp_path / "josé")
    finally:
        site.unlink()
    (tmp_path / "torn/.dvc/config.local").write_bytes(b"[core\n")
    with pytest.raises(ValueError, match=r"config\.local cannot be read"):
        keep_site(tmp_path / "torn")
