import sqlite3
import sys
from contextlib import closing

import pytest

from pipeline import tables


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An environment's tables, made in an environment that has none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables.sys, "prefix", str(tmp_path_factory.mktemp("environment")))
        return tables.make()


def rows(path):
    with closing(sqlite3.connect(path)) as database:
        names = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        return {name: database.execute(f'select count(*) from "{name}"').fetchone()[0] for name in names}


def test_make__tables_of_prefect_and_not_one_run(made):
    found = rows(made)
    assert {"flow_run", "task_run", "work_pool"} <= set(found)
    assert {name for name, count in found.items() if count} == {"alembic_version"}
    assert [path.name for path in made.parent.iterdir()] == [made.name]


def test_place__gives_a_new_history_its_tables_for_this_user_alone(made, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "file", lambda: made)
    tables.place(tmp_path)
    assert (tmp_path / "prefect.db").read_bytes() == made.read_bytes()
    assert (tmp_path / "prefect.db").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["prefect.db"]


def test_place__leaves_a_history_as_it_is(made, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "file", lambda: made)
    (tmp_path / "prefect.db").write_text("runs")
    tables.place(tmp_path)
    assert (tmp_path / "prefect.db").read_text() == "runs"


def test_place__without_them_prefect_makes_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "nowhere"))
    tables.place(tmp_path)
    assert list(tmp_path.iterdir()) == []
