from fractions import Fraction

import numpy as np
import pytest

from polygrain.compute.distributed import Distributed
from polygrain.retrieval import streamed as module
from polygrain.retrieval.streamed import Ranking, dealt_out, held_together, on_grid, rankings
from tests.helpers.torchrun import torchrun


def draw(n, d, classes, spread=1.0, seed=0):
    """Rows about the points of their classes; some are equal, one is zero."""
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(classes, d))[np.arange(n) % classes] + spread * generator.normal(size=(n, d))
    rows[n // 2] = rows[n - 1] = 2 * rows[1]
    rows[n // 3] = 0
    return rows.astype(np.float32)


def plain(x, depths):
    """Each query's others by their exact products, one query at a time."""
    found = {}
    for q in np.flatnonzero(depths):
        scores = x.astype(np.float64) @ x[q].astype(np.float64)
        found[q] = [j for j in np.argsort(-scores, kind="stable").tolist() if j != q]
    return found


def compare(x, depths):
    found, expected = {}, plain(x, depths)
    for queries, numbers in rankings(Distributed(x), depths):
        found |= dict(zip(queries.tolist(), numbers.tolist(), strict=True))
    assert sorted(found) == sorted(expected)
    for q, numbers in found.items():
        assert len(numbers) >= depths[q] and numbers == expected[q][: len(numbers)]


def test_on_grid__products_are_exact():
    x = on_grid(draw(60, 37, 5))
    assert x.dtype == np.float32 and (np.rint(x * 2.0**26) == x * 2.0**26).all() and not x[20].any()
    np.testing.assert_allclose(np.linalg.norm(x, axis=1)[:20], 1, atol=1e-6)
    products = x.astype(np.float64) @ x.T.astype(np.float64)
    for i, j in [(0, 1), (1, 1), (1, 59), (7, 20), (40, 41)]:
        exact = sum(Fraction(a) * Fraction(b) for a, b in zip(x[i].tolist(), x[j].tolist(), strict=True))
        assert exact == products[i, j]
    assert on_grid(draw(60, 37, 5)[8:9]).tobytes() == x[8:9].tobytes()


@pytest.mark.parametrize("has_halves", [False, True])
@pytest.mark.parametrize(("cells", "held"), [(160, 2**25), (4_000, 1), (4_000, 900), (2**24, 900), (2**24, 2**25)])
def test_rankings__equal_the_plain_loop(has_halves, cells, held, monkeypatch):
    monkeypatch.setattr(module, "has_bfloat16", lambda device: has_halves)
    monkeypatch.setattr(module, "CELLS", cells)
    monkeypatch.setattr(module, "HELD", held)
    monkeypatch.setattr(module, "ROUNDED", 50)
    x = dealt_out(Distributed(draw(130, 16, 40, 0.3))).part
    compare(x, np.random.default_rng(1).choice([0, 1, 5, 40, 129], 130, p=[0.2, 0.3, 0.3, 0.15, 0.05]))


@pytest.mark.parametrize("shallow", [2**-8, 2**-5])
def test_rankings__of_half_precision_equal_the_plain_loop(shallow, monkeypatch):
    monkeypatch.setattr(module, "SHALLOW", shallow)
    monkeypatch.setattr(module, "has_bfloat16", lambda device: True)
    monkeypatch.setattr(module, "CELLS", 64 * 640)
    answers, kept = [], Ranking.listed
    monkeypatch.setattr(Ranking, "listed", lambda *given: answers.append(found := kept(*given)) or found)
    # Classes follow one another, so that most blocks have nothing for most queries.
    x = on_grid(draw(2_000, 64, 200, 0.4))[np.arange(2_000).reshape(10, 200).T.ravel()]
    compare(x, np.full(2_000, 9))
    assert sum(found is not None for found in answers) > len(answers) / 4


def test_rankings__tie_equal_rows_by_number(monkeypatch):
    monkeypatch.setattr(module, "CELLS", 65 * 7)
    kinds = draw(3, 65, 3)
    compare(on_grid(kinds[np.random.default_rng(0).integers(0, 3, 101)]), np.full(101, 60))


def test_dealt_out__names_the_row_that_is_no_number(monkeypatch):
    monkeypatch.setattr(module, "ROUNDED", 20)
    rows = draw(12, 4, 3)
    rows[7, 2] = np.nan
    with pytest.raises(ValueError, match="embeddings from row 5 on hold nan in row 2"):
        dealt_out(Distributed(rows))


def test_held_together__stays_within_what_may_be_held(monkeypatch):
    monkeypatch.setattr(module, "HELD", 12)
    depths = np.array([1, 1, 5, 5, 9, 9])
    parts = [np.array(rows) for rows in ([0, 1], [2, 3], [4, 5])]
    turns = held_together(parts, depths)
    assert [[rows.tolist() for rows in turn] for turn in turns] == [[[0, 1], [2, 3]], [[4, 5]]]
    assert held_together([], depths) == []


SHARED = """
import sys
from dataclasses import asdict
from pathlib import Path
import numpy as np
from polygrain.compute import processes
from polygrain.compute.distributed import Distributed
from polygrain.retrieval import metrics, streamed, whitening

rng = np.random.default_rng(0)
n, d, block = 600, 24, 50
labels = np.concatenate([rng.integers(0, 40, 300), np.repeat([40, 41, 42], 90), np.full(30, -1)])
rng.shuffle(labels)
x = (rng.normal(size=(n, d)) + 0.3 * (labels[:, None] * np.arange(d) % 7)).astype(np.float32)
x[400] = x[30]
# All rows lie with two processes, as those of one task do; each has its share to ask for.
edges = [0, 250, 600, 600] if processes.count() == 3 else [0, n]
mine = slice(*edges[processes.rank() : processes.rank() + 2])
rows = Distributed(x[mine])

fetched, held, kept = [], [], Distributed.__getitem__
def counted(self, which):
    found = kept(self, which)
    fetched.append(len(found))
    held.append(len(self.part))
    return found
Distributed.__getitem__ = counted

metrics.WHOLE, streamed.CELLS, streamed.ROUNDED, whitening.CELLS = 0, *[block * d] * 3
whitener = whitening.fit(x, 8)
found = {"nearest": asdict(metrics.shared_query_metrics(rows, labels)),
         "none": asdict(metrics.shared_query_metrics(rows, labels, 0)),
         "task": asdict(metrics.shared_query_metrics(rows.between(slice(40, 220)), labels[40:220])),
         "whitened": asdict(metrics.shared_query_metrics(whitening.apply_shared(whitener, rows), labels))}
share = processes.share(n)
# Whitened rows have fewer numbers, so that more of them are a block.
assert max(fetched) <= block * d // 8 and fetched.count(block) > 20
assert max(held) <= max(mine.stop - mine.start, share.stop - share.start)
flat = {f"{name} {key}": values for name, of in found.items() for key, values in of.items()}
np.savez(Path(sys.argv[1]) / f"{processes.count()}-{processes.rank()}", **flat)
"""


@pytest.mark.slow
def test_shared_query_metrics__three_processes_have_the_bytes_of_one_and_hold_their_rows_and_a_block(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(SHARED)
    for count in (1, 3):
        torchrun(count, program, tmp_path)
    one, *three = (np.load(tmp_path / f"{name}.npz", allow_pickle=False) for name in ("1-0", "3-0", "3-1", "3-2"))
    for found in three:
        for name in one.files:
            assert found[name].tobytes() == one[name].tobytes() and found[name].dtype == one[name].dtype, name
