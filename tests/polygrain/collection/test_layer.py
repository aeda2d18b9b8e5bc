"""Vectors of any encoder as a collection: behind their layer, which a query goes through."""

import logging

import numpy as np
import pytest
import torch

from polygrain.collection.collection import Collection
from polygrain.compute.vectors import unit_rows
from tests.polygrain.collection.test_vectors import ROWS, changed, expected


def test_of_vectors__asks_through_the_layer_and_is_the_same_from_its_file(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    names = [f"/photos/{row}.jpg" for row in range(180)]
    made, (plain, smoothed) = Collection.of_vectors(torch.from_numpy(ROWS), names, alike=30), expected(ROWS, 30)
    np.testing.assert_allclose(made.rows, smoothed, atol=1e-6)
    np.testing.assert_allclose(made.plain, plain, atol=1e-6)
    np.testing.assert_allclose(made.query(ROWS[:7] * 3), plain[:7], atol=1e-5)
    assert made.paths == names and "30 nearest: as they are" in caplog.text
    made.save(tmp_path / "x.parquet")
    (tmp_path / "x.parquet").rename(tmp_path / "moved.parquet")
    opened = Collection.open(tmp_path / "moved.parquet", tmp_path / "x.parquet.layer.npz")
    assert opened.search(ROWS[:3], 5) == made.search(ROWS[:3], 5) and opened.facts == made.facts
    np.testing.assert_array_equal(opened.plain, made.plain)


def test_of_vectors__without_its_layer_the_rows_are_read_and_no_query(tmp_path):
    made = Collection.of_vectors(ROWS, alike=30)
    made.save(tmp_path / "x.parquet")
    Collection.of_vectors(ROWS[::-1], alike=2).save(tmp_path / "y.parquet")
    layer, other = (tmp_path / f"{name}.parquet.layer.npz" for name in "xy")
    for change, message in ((layer.unlink, "no such file"), (lambda: other.rename(layer), "is layer")):
        change()
        opened = Collection.open(tmp_path / "x.parquet")
        np.testing.assert_array_equal(opened.rows, made.rows)
        for ask, given in ((opened.query, ROWS), (opened.save, tmp_path / "z.parquet")):
            with pytest.raises(ValueError, match=message):
                ask(given)
    assert not (tmp_path / "z.parquet").exists()


@pytest.mark.parametrize("rows", [ROWS[:1], np.repeat(ROWS[:1], 2, 0), np.repeat(ROWS[:1], 120, 0)])
def test_of_vectors__one_row_and_equal_ones_stay(rows, tmp_path):
    made = Collection.of_vectors(rows)
    np.testing.assert_allclose(made.rows, unit_rows(rows), atol=2e-6)
    assert len(made.search(rows[:1], 5)[0]) == min(5, len(rows)) and made.paths[0] == "0"


@pytest.mark.parametrize(
    ("vectors", "names", "alike", "message"),
    [
        (ROWS[:0], None, None, r"\(0, 24\)"),
        (changed(7, np.inf), None, None, "inf in row 7"),
        (changed(7, 0), None, None, "row 7 of vectors is all zeros"),
        (ROWS, ["a"], None, "180 vectors have 1 names"),
        (ROWS[:3], ["a", "b", "a"], None, "2 vectors have the name 'a'"),
        (ROWS[:2], ["a", ""], None, "'' is no name"),
        (ROWS[:2], ["a", "b\udcff"], None, "is no name"),
        (ROWS, None, 1, "alike is 1"),
    ],
)
def test_of_vectors__says_what_does_not_fit(vectors, names, alike, message):
    with pytest.raises(ValueError, match=message):
        Collection.of_vectors(vectors, names, alike)


def test_of_vectors__it_has_no_images(tmp_path):
    made = Collection.of_vectors(ROWS[:5])
    made.save(tmp_path / "x.parquet")
    for found in (made, Collection.open(tmp_path / "x.parquet", root=tmp_path)):
        for method, *given in ("update",), ("by", found.maker), ("images",):
            with pytest.raises(ValueError, match="is of vectors and has no images"):
                getattr(found, method)(*given)
        for queries, message in ((ROWS[:, :5], "24 numbers, the queries have 5"), (["a.jpg"], "ask in Python")):
            with pytest.raises(ValueError, match=message):
                found.search(queries)
        with pytest.raises(ValueError, match="no network"):
            found.maker.network.to("cpu")
