from dataclasses import replace
from pathlib import Path

import faiss
import numpy as np
import pytest

from polygrain.app.gallery import read
from polygrain.app.knob import Knob, of_file
from polygrain.comparing.comparison import Comparison
from polygrain.store import embeddings
from tests.polygrain.app.test_gallery import SMOOTHED, unit
from tests.polygrain.app.test_gallery import write_file as write

SHARES = [0.0, 0.5, 1.0]


def write_file(file: Path, comparison: Comparison = SMOOTHED) -> Path:
    return write(file, unit(9), [f"{row}.png" for row in range(9)], comparison)


def knob(file: Path, smooth: bool = True) -> Knob:
    return of_file(file, "abc", Path("model"), smooth)


def by_hand(share: float) -> np.ndarray:
    """Rows of a place, one by one."""
    rows = []
    for plain, smoothed in zip(unit(9), unit(9, seed=1), strict=True):
        row = (1 - share) * plain + share * smoothed
        rows.append(row / np.linalg.norm(row))
    return np.array(rows)


def test_at__rows_of_each_place(tmp_path: Path) -> None:
    one, query = knob(write_file(tmp_path / "e.parquet")), unit(1, seed=2)
    assert (one.shares, one.start) == (SHARES, 2) and len({*one.settings}) == 3
    for place, share in enumerate(SHARES):
        gallery = one.at(place)
        np.testing.assert_allclose(gallery.vectors([*range(9)]), by_hand(share), atol=1e-6)
        less = query[0] - np.array(SMOOTHED.mean)
        expected = by_hand(share) @ (less / np.linalg.norm(less))
        scores, rows = gallery.search(gallery.comparison.query(query), 9)
        np.testing.assert_allclose(scores[0], -np.sort(-expected), atol=1e-6)
        assert rows[0].tolist() == np.argsort(-expected).tolist()


def test_of_file__begins_where_the_file_or_the_user_says(tmp_path: Path) -> None:
    file = write_file(tmp_path / "e.parquet", replace(SMOOTHED, share=0.5))
    assert knob(file).start == 1 and knob(file, smooth=False).start == 0
    plain = knob(write_file(tmp_path / "plain.parquet", Comparison()))
    assert (plain.shares, plain.start) == ([0.0], 0)


@pytest.mark.parametrize(("kept", "shares"), [(0.0, [0.0, 1.0]), (0.5, SHARES), (1.0, [0.0, 1.0])])
def test_of_file__of_many_rows_has_no_place_between_but_what_is_kept(tmp_path, monkeypatch, kept, shares):
    monkeypatch.setattr("polygrain.app.knob.MOST_ROWS", 8)
    one = knob(write_file(tmp_path / "e.parquet", replace(SMOOTHED, share=kept)))
    assert one.shares == shares and one.shares[one.start] == kept
    np.testing.assert_allclose(one.at(one.start).vectors([*range(9)]), by_hand(kept), atol=1e-6)


def test_keep__every_search_finds_it(tmp_path: Path) -> None:
    file = write_file(tmp_path / "e.parquet")
    before, one = embeddings.read(file, True), knob(file, smooth=False)
    one.keep(1)
    assert one.start == 1 == knob(file).start
    np.testing.assert_allclose(read(file).vectors([*range(9)]), by_hand(0.5), atol=1e-6)
    # Rows and all else are as before, and who asks for plain rows gets them.
    np.testing.assert_array_equal(embeddings.read(file, True).vectors, before.vectors)
    assert read(file).comparison == replace(SMOOTHED, share=0.5)
    np.testing.assert_array_equal(read(file, smooth=False).vectors([*range(9)]), unit(9))


def test_read__makes_one_index_of_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, flat = [], faiss.IndexFlatIP
    monkeypatch.setattr(faiss, "IndexFlatIP", lambda dim: made.append(dim) or flat(dim))
    for share in SHARES:
        read(write_file(tmp_path / "e.parquet", replace(SMOOTHED, share=share)))
    assert len(made) == 3
