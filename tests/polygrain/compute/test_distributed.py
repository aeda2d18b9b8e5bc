import numpy as np
import pytest

from polygrain.compute import processes
from polygrain.compute.distributed import Distributed, dealt_blocks, share_of, turns
from tests.helpers.torchrun import torchrun

X = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
NUMBERS = np.array([6, 0, 3, 3])


def at(rank, world, monkeypatch):
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", str(world))


def test_distributed__of_one_process_is_an_array():
    x = Distributed(X)
    assert x.shape == (7, 3) and len(x) == 7 and x.own == slice(0, 7)
    for which in (slice(None), slice(2, 5), slice(5, 99), slice(5, 2), slice(-2, None), NUMBERS, NUMBERS[:0]):
        np.testing.assert_array_equal(x[which], X[which])
        if isinstance(which, slice):
            np.testing.assert_array_equal(x.between(which)[:], X[which])
    x[:][0] = 9
    assert (x.part == X).all()


def test_own__is_where_the_part_lies(monkeypatch):
    lengths = [2, 0, 5]
    for rank, own in enumerate([slice(0, 2), slice(2, 2), slice(2, 7)]):
        at(rank, 3, monkeypatch)
        x = Distributed(X[own], lengths)
        assert x.own == own and x.shape == (7, 3)
        mine, held = share_of(x)
        assert mine == own and (held[mine] == X[own]).all()
        inner = x.between(slice(1, 4))
        assert inner.shape == (3, 3) and (inner.part == X[max(1, own.start) : min(4, own.stop)]).all()


def test_share_of__what_all_can_read_is_shared_by_its_length(monkeypatch):
    at(1, 2, monkeypatch)
    mine, held = share_of(X)
    assert mine == processes.share(7) and held is X


def test_dealt_blocks__are_computed_in_their_order():
    parts = [slice(0, 3), slice(3, 6), slice(6, 7)]
    for rows in (X, Distributed(X)):
        found = list(dealt_blocks(rows, parts, lambda block: block.sum(0)))
        np.testing.assert_array_equal(found, [X[part].sum(0) for part in parts])


PROGRAM = """
import sys
from pathlib import Path
import numpy as np
from polygrain.compute import processes
from polygrain.compute.distributed import Distributed, dealt_blocks
from polygrain.compute.principal import mean_of, principal_components

x = np.random.default_rng(0).normal(size=(37, 5)).astype(np.float32)
edges = [0, 20, 20, 37] if processes.count() == 3 else [0, 37]
rows = Distributed(x[slice(*edges[processes.rank() : processes.rank() + 2])])
assert rows.shape == x.shape
numbers = np.array([36, 0, 17, 17, 19, 20])
parts = [slice(start, min(start + 9, 37)) for start in range(0, 37, 9)]
found = {
    "all": rows[:],
    "slice": rows[18:22],
    "none": rows[5:5],
    "numbers": rows[numbers],
    "between": rows.between(slice(10, 30))[5:15],
    "mean": mean_of(rows.between(slice(3, 36))),
    "axes": principal_components(rows, 3).axes,
    "wide": principal_components(rows.between(slice(17, 21)), 2).axes,
}
assert (found["numbers"] == x[numbers]).all() and (found["between"] == x[15:25]).all()
assert (found["axes"] == principal_components(x, 3).axes).all()
dealt = list(dealt_blocks(rows, parts, lambda block: block @ block.T))
if processes.rank() == 0:
    found["dealt"] = np.concatenate([block.ravel() for block in dealt])
else:
    assert not dealt
np.savez(Path(sys.argv[1]) / f"{processes.count()}-{processes.rank()}", **found)
"""


@pytest.mark.slow
def test_distributed__three_processes_see_the_rows_of_one(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    for count in (1, 3):
        torchrun(count, program, tmp_path)
    one, *three = (np.load(tmp_path / f"{name}.npz", allow_pickle=False) for name in ("1-0", "3-0", "3-1", "3-2"))
    for found in three:
        for name in found.files:
            assert found[name].tobytes() == one[name].tobytes() and found[name].dtype == one[name].dtype, name


@pytest.mark.parametrize(("mine", "count"), [(slice(0, 10), 3), (slice(4, 4), 3), (slice(3, 5), 3), (slice(0, 30), 3)])
def test_turns__are_as_many_in_all_processes(mine, count):
    parts = list(turns(mine, 30, 10))
    assert len(parts) == count and all(part.stop - part.start <= 10 for part in parts)
    assert [row for part in parts for row in range(30)[part]] == list(range(30)[mine])
