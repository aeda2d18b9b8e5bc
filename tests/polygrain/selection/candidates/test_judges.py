from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from polygrain.compute.vectors import unit_rows
from polygrain.fisher.granularities import Granularities
from polygrain.selection.candidates.judges import Judge, Settings
from polygrain.selection.criterion import Embedded, Sample, half_whitened
from polygrain.selection.seen import Seen
from polygrain.store.image_table import read_tables
from tests.helpers.settings import comparing
from tests.helpers.small import TASKS, write_images


def world(folder: Path, looks: bool = True, sizes: Sequence[int] = (2, 5)) -> Judge:
    """All but three of the training images are clustered, at random."""
    collection = read_tables(write_images(folder / "images"), list(TASKS))
    sample, rng = Sample(collection.train[::4], collection.tasks[collection.train[::4]]), np.random.default_rng(0)
    rows = np.delete(np.arange(len(collection.train)), [1, 5, 30])
    labels = {f"size{size}": np.arange(len(rows)) % (len(rows) // size) for size in sizes}
    given = Granularities(rows, collection.tasks[collection.train[rows]], labels)
    seen = Seen(sample, {}, unit_rows(rng.normal(size=(len(sample.rows), 9)).astype(np.float32)))
    return Judge(Settings(**comparing()), collection, seen if looks else Seen(sample), given)


def test_judge__finds_what_the_reference_has_and_its_own_views(tmp_path: Path) -> None:
    judge = world(tmp_path)
    looks = half_whitened(judge.seen.looks, judge.settings.reference.dim)
    same, hits = judge.judge(Embedded(looks, [(looks, looks)] * 2))
    assert same.score.tolist() == same.agreement.tolist() == [1] * len(looks) and list(hits) == list(TASKS)
    other, _ = judge.judge(Embedded(looks[::-1].copy(), [(looks, looks)] * 2))
    np.testing.assert_allclose(other.score, 0.8 + 0.2 * other.agreement)
    assert other.agreement.mean() < 0.9


def test_reference__without_looks_it_says_what_to_run_again(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="dvc repro resolution"):
        _ = world(tmp_path, looks=False).reference
