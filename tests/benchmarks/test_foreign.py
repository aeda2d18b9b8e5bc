"""What searches what in each regime, by loops over single queries."""

import numpy as np
import pytest

from benchmarks.foreign import Images, measure
from polygrain.compute.vectors import unit_rows

KINDS, EACH = 4, 9


@pytest.fixture
def images() -> Images:
    """Two tasks of four kinds, of which two come later; the first two images of each kind ask."""
    rng, count = np.random.default_rng(0), 2 * KINDS * EACH
    kinds = np.arange(count) // EACH
    rows = unit_rows((rng.normal(size=(2 * KINDS, 16))[kinds] + rng.normal(size=(count, 16))).astype(np.float32))
    asks, late = np.arange(count) % EACH < 2, kinds % KINDS >= KINDS // 2
    views = np.flatnonzero(~asks)[::3]
    noise = rng.normal(size=(len(views), 3, 16)).astype(np.float32)
    return Images(rows, np.array(["a", "b"])[kinds // KINDS], kinds, asks, late, (views, rows[views][:, None] + noise))


def plain(images: Images, foreign: np.ndarray, asked: np.ndarray, searched: np.ndarray) -> float:
    rows = np.concatenate([images.outputs[searched], foreign])
    kinds, found = [*images.kinds[searched], *[-1] * len(foreign)], []
    for query in asked:
        order = np.argsort(-(rows @ images.outputs[query]))[: EACH - 2]
        found.append(np.mean([kinds[i] == images.kinds[query] for i in order]))
    return 100 * np.mean(found)


def test_measure__the_encoder_as_it_is_in_each_regime(images: Images) -> None:
    foreign = unit_rows(np.random.default_rng(1).normal(size=(50, 16)).astype(np.float32))
    found, nothing = measure(images, foreign), foreign[:0]
    for place, task in enumerate("ab"):
        asked, own = np.flatnonzero(images.asks & (images.tasks == task)), ~images.asks & (images.tasks == task)
        regimes = {
            "alone": plain(images, nothing, asked, own),
            "later kinds": plain(images, nothing, asked[images.late[asked]], own),
            "other tasks": plain(images, nothing, asked, ~images.asks),
            "foreign": plain(images, foreign, asked, ~images.asks),
        }
        for regime, expected in regimes.items():
            assert found[regime]["as it is"][place] == pytest.approx(expected, abs=1e-4)


def test_measure__labels_of_kinds_that_come_later_are_not_fitted(images: Images) -> None:
    """Other labels of theirs change what true pairs give alone, and not what they give later."""
    kinds = images.kinds.copy()
    kinds[images.late & ~images.asks] = np.random.default_rng(2).permutation(kinds[images.late & ~images.asks])
    before, after = (measure(one, images.outputs[:0]) for one in (images, images._replace(kinds=kinds)))
    assert before["alone"]["true pairs"].mean() > after["alone"]["true pairs"].mean() + 5
    assert "foreign" not in before
