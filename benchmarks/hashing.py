"""What DVC takes to hash an output of 64 MiB shards as it does by default, against one thread that does nothing else.

`jobs` is `core.checksum_jobs`: without it DVC hashes the files of a folder above 2 MiB side by side, up to 16 threads.
The last row is the same bytes as one file, which it cannot split.
"""

import hashlib
import os
import tempfile
from functools import partial
from pathlib import Path

from dvc_data.hashfile.build import build
from dvc_data.hashfile.db.local import LocalHashFileDB
from dvc_data.hashfile.state import StateNoop
from dvc_objects.fs.local import LocalFileSystem

from benchmarks.measure import FULL, compare

SHARDS = 32 if FULL else 8
MIB = 2**20


def alone(folder: Path) -> None:
    for file in sorted(folder.iterdir()):
        with file.open("rb") as stream:
            hashlib.file_digest(stream, "md5")


def by_dvc(cache: LocalHashFileDB, folder: Path, jobs: int | None) -> None:
    build(cache, str(folder), cache.fs, "md5", dry_run=True, checksum_jobs=jobs)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        store = LocalFileSystem()
        cache = LocalHashFileDB(store, f"{temporary}/cache", state=StateNoop())
        shards, whole = Path(temporary, "shards"), Path(temporary, "whole")
        for folder in (shards, whole):
            folder.mkdir()
        for number in range(SHARDS):
            content = os.urandom(MIB) * 64
            (shards / f"{number}").write_bytes(content)
            with (whole / "0").open("ab") as stream:
                stream.write(content)
        for folder, jobs in ((shards, None), (shards, 1), (shards, 2), (shards, 4), (whole, None)):
            compare(
                f"MD5 of {SHARDS * 64} MiB in {len(list(folder.iterdir()))} files by DVC, jobs {jobs or 'by default'}",
                partial(by_dvc, cache, folder, jobs), partial(alone, folder), 3, peer="one thread of hashlib",
            )  # fmt: skip
