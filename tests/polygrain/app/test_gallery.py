from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polygrain import app
from polygrain.app.digest import digest
from polygrain.app.embedding import schema, write
from polygrain.app.gallery import Gallery, augmented, read, read_of, search
from polygrain.app.listing import find
from polygrain.encoder.model import load


def unit(rows: int, dim: int = 8, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(rows, dim)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def gallery(rows: int = 50, **more: int) -> Gallery:
    return Gallery(Path("/"), [f"task{row % 3}/{row}.png" for row in range(rows)], unit(rows), "abc", **more)


@pytest.mark.parametrize("chosen", [None, np.arange(50) % 3 == 1, np.arange(50) < 2, np.zeros(50, bool)])
def test_search__equals_sorting_all(chosen: np.ndarray | None) -> None:
    queries = unit(3, seed=1)
    scores, rows = gallery().search(queries, 5, chosen)
    among = np.flatnonzero(chosen) if chosen is not None else np.arange(50)
    for query, query_scores, query_rows in zip(queries, scores, rows, strict=True):
        expected = sorted(among, key=lambda row: -(unit(50)[row] @ query))[:5]
        assert query_rows.tolist() == expected
        np.testing.assert_allclose(query_scores, unit(50)[expected] @ query, atol=1e-6)


def test_search__ties_by_row() -> None:
    same = Gallery(Path("/"), [f"{row}.png" for row in range(6)], np.repeat(unit(2), 3, 0), "abc")
    assert same.search(unit(1), 6)[1][0].tolist()[:3] == [0, 1, 2]


def test_search__the_same_where_a_peer_has_replaced_the_search_of_faiss() -> None:
    same = [gallery().search(unit(3, seed=1), 5)[1].tolist()]
    import faiss.contrib.torch_utils  # noqa: F401

    assert [gallery().search(unit(3, seed=1), 5)[1].tolist()] == same


def test_gallery__many_rows_go_into_lists_whose_recall_is_measured() -> None:
    """The measured recall is near what other queries get, and a choice of few rows loses none of them."""
    many, exact = gallery(3000, exact=1000), gallery(3000)
    assert exact.recall is None and 0.99 <= many.recall <= 1
    queries = unit(100, seed=2)
    expected, rows = exact.search(queries, 10)[1], many.search(queries, 10)[1]
    assert np.mean([len({*a} & {*b}) / 10 for a, b in zip(expected, rows, strict=True)]) > 0.9
    chosen = np.arange(3000) % 3 == 2
    assert (many.search(queries, 10, chosen)[1] % 3 == 2).all()
    # As few as that lie in lists far from the query: all are looked into.
    few = np.isin(np.arange(3000), [7, 70, 700, 2000])
    np.testing.assert_array_equal(many.search(queries, 10, few)[1], exact.search(queries, 10, few)[1])
    many.index.nprobe = 1
    assert (many.search(queries, 300)[1] >= 0).all()
    np.testing.assert_array_equal(many.vectors([7, 5]), unit(3000)[[7, 5]])


@pytest.mark.parametrize(("rows", "exact"), [(50, 50), (50, 49), (3, 3), (1, 1)])
def test_augmented__equals_a_loop_over_rows_sorted_by_cosine(rows: int, exact: int) -> None:
    x, queries = unit(rows), unit(4, seed=1)

    def mixed(row: np.ndarray, others: list[int]) -> np.ndarray:
        nearest = sorted(others, key=lambda j: -(x[j] @ row))[:3]
        total = row + sum(max(0, x[j] @ row) ** 3 * x[j] for j in nearest)
        return total / np.linalg.norm(total)

    # A list each for many rows, all of which are looked into: the recall of so few is 1.
    result = augmented(gallery(rows, exact=exact), exact)
    stored = np.array([mixed(x[i], [j for j in range(rows) if j != i]) for i in range(rows)])
    np.testing.assert_allclose(result.vectors(np.arange(rows)), stored, atol=1e-6)
    np.testing.assert_allclose(result.expanded(queries), [mixed(q, [*range(rows)]) for q in queries], atol=1e-6)
    np.testing.assert_array_equal(result.plain.vectors(np.arange(rows)), x)
    assert gallery().expanded(queries) is queries


def test_augmented__equal_images_stay_equal() -> None:
    """Six copies each: a row may be missing among its own nearest, and its copies are no other images' neighbours."""
    same = augmented(Gallery(Path("/"), [f"{row}.png" for row in range(12)], np.repeat(unit(2), 6, 0), "abc"))
    np.testing.assert_allclose(same.vectors(np.arange(12)), np.repeat(unit(2), 6, 0), atol=1e-6)


def test_gallery__tasks_are_the_first_folders() -> None:
    found = Gallery(Path("/"), ["b/x/1.png", "a.png", "b/2.png", "a/3.png"], unit(4), "abc")
    assert found.task_names == ["", "a", "b"] and found.tasks.tolist() == [2, 0, 2, 1]


def write_file(file: Path, vectors: np.ndarray, paths: list[str], **metadata: str) -> Path:
    dim = vectors.shape[1]
    metadata = {"model": "abc", "dim": str(dim), "root": "/photos", "images": "-"} | metadata
    columns = [pa.array(paths), pa.FixedSizeListArray.from_arrays(vectors.ravel(), dim)]
    filled = {name: value for name, value in metadata.items() if value}
    pq.write_table(pa.Table.from_arrays(columns, schema=schema(dim, filled)), file)
    return file


def test_read__gives_back_what_was_written(tmp_path: Path) -> None:
    found = read(write_file(tmp_path / "e.parquet", unit(9), [f"{row}.png" for row in range(9)]))
    assert (found.root, found.digest, len(found), found.paths[3]) == (Path("/photos"), "abc", 9, "3.png")
    np.testing.assert_array_equal(found.vectors(list(range(9))), unit(9))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": ""}, "lack model"),
        ({"dim": "9"}, "2 rows"),
        ({"vectors": np.full((2, 8), np.nan, np.float32)}, "unit length"),
        ({"paths": ["a.png", "c/../../b.png"]}, "no path below"),
    ],
)
def test_read__refuses_a_file_that_is_missing_damaged_or_of_another_kind(
    tmp_path: Path, changes: dict, message: str
) -> None:
    file = tmp_path / "e.parquet"
    with pytest.raises(ValueError, match="is missing or damaged"):
        read(file)
    write_file(file, **({"vectors": unit(2), "paths": ["a.png", "b.png"]} | changes))
    with pytest.raises(ValueError, match=f"e.parquet is missing or damaged .*{message}"):
        read(file)


def test_read_of__refuses_the_embeddings_of_another_model(tmp_path: Path) -> None:
    file = write_file(tmp_path / "e.parquet", unit(1), ["a.png"])
    assert len(read_of(file, "abc", Path("model"))) == 1
    with pytest.raises(ValueError, match=r"model abc, data/choice is def: .*`polygrain embed /photos -o "):
        read_of(file, "def", Path("data/choice"))


def test_search__finds_an_image_by_itself_and_then_its_class(fused: Path, shared_photos: Path, tmp_path: Path) -> None:
    file = tmp_path / "e.parquet"
    write(load(fused), digest(fused), find(shared_photos), file)
    hits = search(shared_photos / "dots/class2/1.png", file, fused, k=3)
    assert hits[0].path == "dots/class2/1.png" and hits[0].score == pytest.approx(1, abs=1e-5)
    assert [hit.score for hit in hits] == sorted([hit.score for hit in hits], reverse=True)
    assert app.search is search
    more = search(shared_photos / "dots/class2/1.png", file, fused, k=3, augment=True)
    assert more[0].score > 0.99 and more[1].score > hits[1].score  # what is mixed with its like is more like it
