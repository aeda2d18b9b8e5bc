"""A record of a run is what its name says, or it is refused."""

import pytest
from benchmarks.hostile import remotes
from ruamel.yaml import YAML

from pipeline import runs
from tests.pipeline import toy


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> dict[str, bytes]:
    """{place: bytes} of the runs that DVC has recorded."""
    folder = toy.make(tmp_path_factory.mktemp("runs") / "toy", first=1, second=1)
    toy.run(folder, "dvc", "repro")
    root = folder / ".dvc/cache/runs"
    return {str(file.relative_to(root)): file.read_bytes() for file in root.glob("*/*/*")}


def test_read__what_dvc_records(kept):
    entries = [runs.read(data, place) for place, data in kept.items()]
    assert sorted(entry["outs"][0]["path"] for entry in entries) == [
        "data/first/f0",
        "data/last",
        "data/second/s00",
        "data/source",
    ]


@pytest.mark.parametrize("place", ["x", "../../x", "ab/../x", "ab/cd/ef", "/ab", f"ab/{'0' * 64}/{'0' * 64}", "ab\n"])
def test_read__refuses_a_strange_place(kept, place):
    with pytest.raises(ValueError, match="lies where no run does"):
        runs.read(next(iter(kept.values())), place)


@pytest.mark.parametrize(
    "change",
    [
        lambda run: run.update(cmd="touch planted"),
        lambda run: run["outs"][0].update(path="Makefile"),
        lambda run: run["outs"][0].update(md5="0" * 32),
        lambda run: run["outs"].append({"path": "x", "hash": "md5", "md5": "0" * 32}),
        lambda run: run.update(deps=[]),
    ],
)
def test_read__refuses_what_is_not_its_name(kept, change, tmp_path):
    (place, data) = next((place, data) for place, data in kept.items() if b"data/last" in data)
    run = YAML(typ="safe").load(data)
    change(run)
    YAML().dump(run, tmp_path / "run")
    with pytest.raises(ValueError, match="is not the run that its name says"):
        runs.read((tmp_path / "run").read_bytes(), place)


@pytest.mark.parametrize(
    "data", [remotes.BOMB, b"cmd: &a [*a]\n", b"cmd: " + b"[" * 100_000, b"\xff\xfe", b"", b"- x\n", b"outs: []\n"]
)
def test_read__refuses_what_no_run_looks_like(kept, data):
    with pytest.raises(ValueError, match=r"is no record of a run|holds more than"):
        runs.read(data, next(iter(kept)))


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ({"path": "x", "hash": "md5", "md5": "0" * 32, "isexec": True}, "gives the output 'x' 'isexec'"),
        ({"path": "x", "hash": "md5", "md5": "0" * 32, "files": []}, "'files'"),
        ({"path": "x", "hash": "md5", "md5": "0" * 32, "size": True}, "'size'"),
        ({"path": "x", "hash": "md5", "md5": "../" * 10 + "ab"}, "no md5"),
        ({"path": "x", "hash": "etag", "md5": "0" * 32}, "no md5"),
        ({"path": "x"}, "no md5"),
    ],
)
def test_require_plain(out, message):
    with pytest.raises(ValueError, match=message):
        runs.require_plain(out)
