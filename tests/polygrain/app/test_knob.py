import json
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import faiss
import numpy as np
import pytest

from polygrain.app.gallery import Gallery, Setting, read
from polygrain.app.knob import Knob, line, of_file
from polygrain.retrieval.smoothing import Smoothing, mixed_with_nearest, smooth_as
from polygrain.store import embeddings
from tests.polygrain.app.test_gallery import unit

DIM = 40


def write_file(file: Path, *, smoothed: bool = True, **metadata: str) -> Path:
    facts = {"model": "abc", "dim": str(DIM), "root": "/photos", "images": "-"} | metadata
    columns = {"path": [f"{row}.png" for row in range(9)], "embedding": unit(9, DIM)}
    if smoothed:
        columns["smoothed"] = unit(9, DIM, seed=1)
        facts["smoothing"] = '{"strength": 0.9, "neighbours": 3}'
    embeddings.write(file, columns, facts)
    return file


def knob(file: Path, axes: int | None = None) -> Knob:
    return of_file(file, "abc", Path("model"), axes)


def by_hand(setting: Setting) -> np.ndarray:
    """Rows of a setting, one by one."""
    rows = []
    for plain, smoothed in zip(unit(9, DIM), unit(9, DIM, seed=1), strict=True):
        row = (1 - setting.smoothed) * plain + setting.smoothed * smoothed
        rows.append(row[: setting.axes] / np.linalg.norm(row[: setting.axes]))
    return np.array(rows)


def test_line__goes_one_way() -> None:
    """Each step smooths more or compares fewer axes."""
    assert line(512, None, False) == [Setting(512)]
    assert line(40, None, True) == [Setting(40, 0.0), Setting(40, 0.5), Setting(40, 1.0)]
    assert line(40, 30, False) == [Setting(40), Setting(32), Setting(30), Setting(24)]
    settings = line(512, 96, True)
    for before, after in pairwise(settings):
        assert (after.smoothed >= before.smoothed) and (after.axes <= before.axes) and after != before


def test_at__rows_as_each_setting_says(tmp_path: Path) -> None:
    one = knob(write_file(tmp_path / "e.parquet", axes="30"))
    assert one.settings[one.start] == Setting(DIM, 1.0)
    for place, setting in enumerate(one.settings):
        np.testing.assert_allclose(one.at(place).vectors([*range(9)]), by_hand(setting), atol=1e-6)
        query = unit(1, DIM, seed=2)
        scores, rows = one.at(place).search(one.at(place).asked(query), 9)
        expected = by_hand(setting) @ query[0, : setting.axes] / np.linalg.norm(query[0, : setting.axes])
        np.testing.assert_allclose(scores[0], -np.sort(-expected), atol=1e-6)
        assert rows[0].tolist() == np.argsort(-expected).tolist()


def test_of_file__begins_where_the_file_or_the_user_says(tmp_path: Path) -> None:
    file = write_file(tmp_path / "e.parquet", smoothed=False, axes="30")
    assert knob(file).settings[knob(file).start] == Setting(30)
    smoothed = write_file(tmp_path / "s.parquet")
    assert [one.axes for one in knob(smoothed).settings] == [DIM] * 3  # without a grain no axes are left out
    asked = of_file(
        write_file(tmp_path / "e.parquet", setting='{"axes": 24, "smoothed": 1}'), "abc", Path(), None, False
    )
    assert asked.settings[asked.start] == Setting(DIM) and asked.settings[-1] == Setting(DIM, 1.0)
    asked = knob(smoothed, 20)
    assert asked.settings[asked.start] == Setting(20) and asked.smoothed is None


@pytest.mark.parametrize("kept", [Setting(30), Setting(DIM, 1.0), Setting(24, 1.0), Setting(DIM)])
def test_of_file__of_many_rows_has_what_the_file_names_and_what_is_kept(tmp_path, monkeypatch, kept):
    monkeypatch.setattr("polygrain.app.knob.MOST_ROWS", 8)
    file = write_file(tmp_path / "e.parquet", axes="30")
    assert knob(file).settings == [Setting(30), Setting(DIM, 1.0)] and knob(file).start == 1
    assert knob(write_file(tmp_path / "plain.parquet", smoothed=False)).settings == [Setting(DIM)]
    embeddings.annotate(file, {"setting": json.dumps(asdict(kept))})
    one = knob(file)
    assert one.settings[one.start] == kept and len(one.settings) == len({*one.settings, Setting(30)})
    for place, setting in enumerate(one.settings):
        np.testing.assert_allclose(one.at(place).vectors([*range(9)]), by_hand(setting), atol=1e-6)


def test_keep__every_search_finds_it(tmp_path: Path) -> None:
    file = write_file(tmp_path / "e.parquet", axes="30")
    table, one = embeddings.read(file, True), knob(file)
    place = one.settings.index(Setting(24, 1.0))
    one.keep(place)
    assert one.start == place and knob(file).start == place
    np.testing.assert_allclose(read(file).vectors([*range(9)]), by_hand(Setting(24, 1.0)), atol=1e-6)
    # Rows and all else are as before, and who asks for something else gets it.
    np.testing.assert_array_equal(embeddings.read(file, True).vectors, table.vectors)
    assert embeddings.metadata(file)["axes"] == b"30" and read(file, smooth=False).axes == 30
    assert read(file, axes=7).axes == 7


def test_read__makes_one_index_of_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, made, flat = write_file(tmp_path / "e.parquet", axes="30"), [], faiss.IndexFlatIP
    monkeypatch.setattr(faiss, "IndexFlatIP", lambda dim: made.append(dim) or flat(dim))
    for kept in (Setting(24, 1.0), Setting(DIM, 0.5), Setting(24)):
        embeddings.annotate(file, {"setting": json.dumps(asdict(kept))})
        np.testing.assert_allclose(read(file).vectors([*range(9)]), by_hand(kept), atol=1e-6)
    assert made == [24, DIM, 24]


@pytest.mark.parametrize(
    "setting", [{"axes": 41, "smoothed": 0}, {"axes": 0}, {"axes": 8, "smoothed": 0.5}, {"axes": 8, "smoothed": 2}]
)
def test_read__refuses_a_setting_that_cannot_be(tmp_path: Path, setting: dict) -> None:
    file = write_file(tmp_path / "e.parquet", smoothed=False, setting=json.dumps(setting))
    with pytest.raises(ValueError, match=r"e\.parquet"):
        read(file)


def test_asked__as_if_the_images_were_new(tmp_path: Path) -> None:
    """Every ranking equals a sort of the others, smoothed without those that ask, by a query that is not smoothed."""
    vectors, by = unit(60, DIM), Smoothing(0.9, 5, 2)
    paths = [f"{row}.png" for row in range(60)]
    plain = Gallery(tmp_path, paths, vectors, "abc")
    smoothed = Gallery(tmp_path, paths, smooth_as(vectors, by), "abc", smoothing=by)
    knob = Knob(plain, smoothed, line(DIM, None, True))
    asked, ranked = knob.asked(20, 7)
    others = np.setdiff1d(np.arange(60), asked)
    assert len(set(asked.tolist())) == 20 and ranked.shape == (3, 20, 7)
    after = smooth_as(vectors[others], by)
    half = vectors[others] / 2 + after / 2
    for place, rows in enumerate((vectors[others], half / np.linalg.norm(half, axis=1, keepdims=True), after)):
        queries = mixed_with_nearest(vectors[asked], rows, by) if place else vectors[asked]
        expected = others[np.argsort(-(queries @ rows.T), axis=1)[:, :7]]
        np.testing.assert_array_equal(ranked[place], expected)
