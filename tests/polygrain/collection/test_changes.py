import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from polygrain import Collection
from polygrain.collection import file as files
from polygrain.collection.changes import changes
from polygrain.collection.file import Facts, File
from polygrain.collection.postprocessing.comparison import Comparison
from polygrain.collection.postprocessing.diffusion import Smoothing
from polygrain.compute.vectors import unit_rows
from tests.helpers.docs_text import ROOT, blocks
from tests.test_docs_blocks import draw, write_model

FACTS = Facts("abc", 8, Comparison())


def unit(rows: int, dim: int = 8, seed: int = 0) -> np.ndarray:
    return unit_rows(np.random.default_rng(seed).normal(size=(rows, dim)).astype(np.float32))


def write(file: Path, rows: dict[str, np.ndarray], facts: Facts = FACTS) -> File:
    files.write(file, {"path": [*rows], "searched": np.stack([*rows.values()])}, facts)
    return File(file)


def test_changes__equal_a_walk_over_all_paths(tmp_path: Path) -> None:
    drawn, rng = dict(zip(map(str, range(3000)), unit(3000), strict=True)), np.random.default_rng(1)
    earlier = {path: row for path, row in drawn.items() if int(path) % 7}
    later = {path: drawn[path] for path in rng.permutation([*drawn]) if int(path) % 5}
    for path in [path for path in later if int(path) % 11 == 0]:
        later[path] = unit_rows(later[path][None] + (1e-2 if int(path) % 2 else 1e-5) * unit(1, seed=int(path)))[0]
    found = changes(write(tmp_path / "later.parquet", later), write(tmp_path / "earlier.parquet", earlier))
    sent = [path for path in later if path not in earlier or np.linalg.norm(later[path] - earlier[path]) > 1e-3]
    assert found.paths == sent
    assert found.deleted == [path for path in earlier if path not in later]
    np.testing.assert_array_equal(found.rows, np.stack([later[path] for path in sent]))


@pytest.mark.parametrize("other", [None, replace(FACTS, model="def"), replace(FACTS, dim=4)])
def test_changes__all_rows_where_none_is_comparable(tmp_path: Path, other: Facts | None) -> None:
    now = write(tmp_path / "now.parquet", dict(zip("ab", unit(2), strict=True)))
    before = other and write(
        tmp_path / "before.parquet", {"b": unit(2)[1][: other.dim] * 0, "c": unit(1, other.dim)[0]}, other
    )
    found = changes(now, before)
    assert (found.paths, found.deleted) == (["a", "b"], ["c"] if other else [])
    np.testing.assert_array_equal(found.rows, now.rows("searched"))


@pytest.fixture
def postgres(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server with pgvector and a database `images`, as the environment names it; it listens on a socket alone."""
    psycopg = pytest.importorskip("psycopg")
    where = os.pathsep.join([os.environ["PATH"], *map(str, Path("/usr/lib/postgresql").glob("*/bin"))])
    programs = [shutil.which(program, path=where) for program in ("initdb", "pg_ctl")]
    if None in programs:
        pytest.skip("PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # the name of a socket is short
    # It does not run as root.
    user = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.getuid() == 0 else {}
    shutil.chown(folder, user.get("user", os.getuid()))

    def run(program: str, *words: str) -> None:
        subprocess.run([program, "-D", "data", *words], check=True, cwd=folder, stdout=subprocess.DEVNULL, **user)

    run(programs[0], "--auth=trust", "--username=tester", "--encoding=UTF8", "--no-sync")
    options = f"-F -c listen_addresses='' -c unix_socket_directories='{folder}'"
    run(programs[1], "start", "--wait", "--log", str(folder / "log"), "--options", options)
    monkeypatch.setenv("PGHOST", str(folder))
    monkeypatch.setenv("PGUSER", "tester")
    try:
        with psycopg.connect("dbname=postgres", autocommit=True) as connection:
            if not connection.execute("SELECT FROM pg_available_extensions WHERE name = 'vector'").fetchall():
                pytest.skip("pgvector is not installed")
            connection.execute("CREATE DATABASE images")
        yield
    finally:
        run(programs[1], "stop", "--mode=immediate")
        shutil.rmtree(folder)


# The rows of all paths, read behind the lines of the page.
HELD = {
    "qdrant_client": "held = {p.payload['path']: p.vector for p in"
    " client.scroll(name, limit=99, with_vectors=True)[0]}",
    "psycopg": "with psycopg.connect('dbname=images') as db:"
    " held = dict(db.execute(f'SELECT path, row::real[] FROM {name}'))",
}


@pytest.mark.parametrize("is_smoothed", [False, True])
@pytest.mark.parametrize("database", ["qdrant_client", pytest.param("psycopg", marks=pytest.mark.slow)])
def test_changes__a_database_ends_with_the_rows_of_the_file(
    database: str, is_smoothed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """By the lines of the page, of which the first call is killed when the database has the rows."""
    if database == "psycopg":
        request.getfixturevalue("postgres")
    monkeypatch.chdir(tmp_path)
    write_model(Path("data/choice"))
    draw(Path("my/images"))
    if is_smoothed:  # few images are so only where an earlier file says it
        few = Collection.of(Path("my/images"), file="shoes.parquet")
        few.file.write(Path("shoes.parquet"), replace(few.facts, comparison=Comparison(smoothing=Smoothing(0.5, 3))))
    first, *others = [block.code for block in blocks(ROOT / "docs/howto/databases.md") if block.kind == "python"]
    code = first + next(code for code in others if f"import {database}" in code or f"from {database}" in code)

    def run(code: str) -> dict[str, Any]:
        names: dict[str, Any] = {}
        exec(compile(code, "databases.md", "exec"), names)
        if "client" in names:
            names["client"].close()
        return names

    killed = run(code.removesuffix("sending.replace(sent)\n"))
    assert killed["changes"].paths == killed["shoes"].paths and killed["shoes"].is_smoothed == is_smoothed
    Image.linear_gradient("L").save("my/images/class1/3.jpg")
    Image.radial_gradient("L").save("my/images/new.png")
    Path("my/images/class0/2.jpg").unlink()
    run(code)
    last = run(code + HELD[database])
    shoes, sent, rows = last["shoes"], last["changes"], last["held"]
    assert rows.keys() == {*shoes.paths} and sent.deleted == ["class0/2.jpg"]
    np.testing.assert_array_equal(np.array([rows[path] for path in shoes.paths], np.float32), shoes.rows)
    assert {"class1/3.jpg", "new.png"} <= {*sent.paths} and (is_smoothed or len(sent.paths) == 2)
    assert run(code)["changes"].paths == []
