"""What was ingested of a stream so far, on the disk: a table of SQLite, so memory does not grow with the images.

A kill at any moment leaves it as it was when a shard was last full, and whoever opens it goes on from there.
"""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TABLES = """
create table if not exists kept (
    number integer primary key, path text unique, class_name text, width int, height int, bytes int, sha256 text unique
);
create table if not exists rejected (path text, reason text);
create table if not exists reached (file int, skip int, shards int);
"""


class Reached(NamedTuple):
    """The place of the next entry of the stream, and how many shards are full."""

    file: int = 0
    skip: int = 0
    shards: int = 0


class Ledger:
    """Images kept, in the order of their rows, and entries left out; nothing counts before `reach` has said so."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        # A transaction is begun here and ended by `reach` alone.
        self.tables = sqlite3.connect(file, isolation_level=None)
        self.tables.executescript(TABLES)
        self.tables.execute("begin")

    def close(self) -> None:
        self.tables.close()

    @property
    def reached(self) -> Reached:
        found = self.tables.execute("select file, skip, shards from reached").fetchone()
        return Reached(*found) if found else Reached()

    def reach(self, file: int, skip: int, shards: int) -> None:
        """Keeps all that was noted: it survives a kill from here on."""
        self.tables.execute("delete from reached")
        self.tables.execute("insert into reached values (?, ?, ?)", (file, skip, shards))
        self.tables.execute("commit")
        self.tables.execute("begin")

    def clear(self) -> None:
        """Forgets everything."""
        for table in ("kept", "rejected", "reached"):
            self.tables.execute(f"delete from {table}")
        self.tables.execute("commit")
        self.tables.execute("begin")

    def keep(self, number: int, path: str, class_name: str, measures: tuple[int, int, int, str]) -> str | None:
        """Notes an image with its width, height, bytes and SHA-256; or says why not: it is there already."""
        twin = self.tables.execute("select path from kept where sha256 = ?", (measures[-1],)).fetchone()
        if twin:
            return f"duplicate of {twin[0]}"
        if self.tables.execute("select 1 from kept where path = ?", (path,)).fetchone():
            return "its name is there twice"
        self.tables.execute("insert into kept values (?, ?, ?, ?, ?, ?, ?)", (number, path, class_name, *measures))
        return None

    def reject(self, path: str, reason: str) -> None:
        self.tables.execute("insert into rejected values (?, ?)", (path, reason))

    @property
    def is_labelled(self) -> bool | None:
        """Whether the first image has a class; None before there is one."""
        found = self.tables.execute("select class_name from kept where number = 0").fetchone()
        return bool(found[0]) if found else None

    def __len__(self) -> int:
        return self.tables.execute("select count(*) from kept").fetchone()[0]

    def classes(self) -> dict[str, int]:
        """{class name: images kept}"""
        return dict(
            self.tables.execute("select class_name, count(*) from kept group by class_name order by class_name")
        )

    def rows(self) -> Iterator[tuple]:
        """(path, class name, width, height, bytes, SHA-256) of every image, in the order of their rows."""
        return self.tables.execute("select path, class_name, width, height, bytes, sha256 from kept order by number")

    def rejections(self, first: int = -1) -> Iterator[tuple[str, str]]:
        """(path, reason), sorted; the first so many, -1 for all."""
        return self.tables.execute("select path, reason from rejected order by path, reason limit ?", (first,))

    def rejected(self) -> int:
        return self.tables.execute("select count(*) from rejected").fetchone()[0]
