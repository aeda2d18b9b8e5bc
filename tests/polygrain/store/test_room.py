import logging
import shutil
from pathlib import Path

import pytest

from polygrain.store import room


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A disk with 5 GB left; the places that were asked about."""
    asked: list[Path] = []
    usage = shutil._ntuple_diskusage(10**10, 5 * 10**9, 5 * 10**9)
    monkeypatch.setattr(room.shutil, "disk_usage", lambda place: asked.append(place) or usage)
    return asked


def test_require__too_little_room_is_refused_with_both_numbers(tmp_path: Path, free: list[Path]) -> None:
    needed = 1_331_167 * 256**2 * 3
    with pytest.raises(ValueError, match=r"squares take 261\.72 GB at .*/a/b, and 5\.00 GB are free there: free some"):
        room.require(tmp_path / "a/b", needed, "squares")
    assert free == [tmp_path]  # the nearest folder that is there


@pytest.mark.parametrize(("needed", "lines"), [(5 * 10**9, 1), (10**6, 0)])
def test_require__what_is_large_is_said(
    tmp_path: Path, free: list[Path], caplog: pytest.LogCaptureFixture, needed: int, lines: int
) -> None:
    with caplog.at_level(logging.INFO):
        room.require(tmp_path, needed, "squares")
    assert len(caplog.messages) == lines and all("take 5.00 GB" in line for line in caplog.messages)
