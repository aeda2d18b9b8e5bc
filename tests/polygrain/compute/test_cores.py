import os
from pathlib import Path

import pytest

from polygrain.compute import cores as module


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/a/b\n", {"a/cpu.max": "150000 100000", "a/b/cpu.max": "max 100000"}, 2),
        ("0::/\n", {"cpu.max": "50000 100000"}, 1),
        ("1:cpu,cpuacct:/outside\n0::/\n", {"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 64),
        ("0::/\n", {}, 64),
    ],
)
def test_cores__by_affinity_and_quota(own: str, files: dict, expected: int, tmp_path: Path, monkeypatch) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "own").write_text(own)
    monkeypatch.setattr(module, "GROUPS", tmp_path)
    monkeypatch.setattr(module, "OWN", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64))
    assert module.cores() == expected
