"""Plain dvc keeps what it pickles in the clone, where nobody else can write."""

import re
import shutil
import subprocess
import sys

import pytest

from benchmarks import toy
from polygrain.config.site import keep_site


@pytest.fixture
def site_of(monkeypatch):
    """Where plain dvc keeps it, as it says itself."""
    monkeypatch.delenv("DVC_SITE_CACHE_DIR", raising=False)

    def site_of(folder) -> str:
        command = [sys.executable, "-m", "dvc", "doctor"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        return re.search(r"Repo.site_cache_dir: (.*)", done.stdout)[1]

    return site_of


def test_keep_site__plain_dvc_uses_a_private_folder_also_after_the_clone_has_moved(tmp_path, site_of):
    first = toy.make(tmp_path / "a, b#")
    (first / ".dvc/config.local").write_text("[cache]\n    dir = /elsewhere\n")
    keep_site(first)
    assert site_of(first).startswith(f"{first}/.dvc/site/")
    assert (first / ".dvc/site").stat().st_mode & 0o777 == 0o700
    second = tmp_path / "second"
    shutil.move(first, second)
    keep_site(second)
    assert site_of(second).startswith(f"{second}/.dvc/site/") and not first.exists()
    assert "dir = /elsewhere" in (second / ".dvc/config.local").read_text()
