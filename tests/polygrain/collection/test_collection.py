from pathlib import Path

import numpy as np
import pytest

from polygrain import app
from polygrain.collection import file as embeddings
from polygrain.collection.collection import Gallery, located, read, read_of, search
from polygrain.collection.embedding import write
from polygrain.collection.listing import find
from polygrain.collection.postprocessing.comparison import Comparison
from polygrain.collection.postprocessing.diffusion import Smoothing
from polygrain.encoder.digest import digest
from polygrain.encoder.model import load


def unit(rows: int, dim: int = 8, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(rows, dim)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def gallery(rows: int = 50) -> Gallery:
    return Gallery(Path("/"), [f"task{row % 3}/{row}.png" for row in range(rows)], unit(rows), "abc")


def test_located__a_file_near_the_root_of_the_disk_lies_in_no_graph():
    assert located(Path("/old.parquet"), Path("/photographs")) == Path("/photographs")


@pytest.mark.parametrize("chosen", [None, np.arange(50) % 3 == 1, np.arange(50) < 2, np.zeros(50, bool)])
def test_search__equals_sorting_all(chosen: np.ndarray | None) -> None:
    queries = unit(3, seed=1)
    scores, rows = gallery().search(queries, 5, chosen)
    among = np.flatnonzero(chosen) if chosen is not None else np.arange(50)
    for query, query_scores, query_rows in zip(queries, scores, rows, strict=True):
        expected = sorted(among, key=lambda row: -(unit(50)[row] @ query))[:5]
        assert query_rows.tolist() == expected
        np.testing.assert_allclose(query_scores, unit(50)[expected] @ query, atol=1e-6)


def test_search__the_same_where_a_peer_has_replaced_the_search_of_faiss() -> None:
    same = [gallery().search(unit(3, seed=1), 5)[1].tolist()]
    import faiss.contrib.torch_utils  # noqa: F401

    assert [gallery().search(unit(3, seed=1), 5)[1].tolist()] == same


UNSMOOTHED = Comparison()
SMOOTHED = Comparison(tuple(np.full(8, 0.1, np.float32).tolist()), Smoothing(0.9, 3), alike=4)


def write_file(file: Path, vectors: np.ndarray, paths: list[str], comparison: Comparison = UNSMOOTHED) -> Path:
    facts = {"model": "abc", "dim": str(vectors.shape[1]), "root": "/photos", "images": "-"}
    columns = {"path": paths, "embedding": vectors}
    if comparison.smoothing.strength:
        columns["smoothed"] = unit(len(vectors), vectors.shape[1], seed=1)
    embeddings.write(file, columns, facts | {"comparison": comparison.to_json()})
    return file


@pytest.mark.parametrize("kept", [SMOOTHED, SMOOTHED.unsmoothed()])
def test_read__rows_as_the_comparison_says(tmp_path: Path, kept: Comparison) -> None:
    paths, plain = [f"{row}.png" for row in range(9)], unit(9)
    gallery = read(write_file(tmp_path / "e.parquet", plain, paths, kept))
    assert (gallery.root, gallery.digest, gallery.paths, gallery.comparison) == (Path("/photos"), "abc", paths, kept)
    np.testing.assert_array_equal(gallery.vectors([*range(9)]), plain if kept.is_plain else unit(9, seed=1))
    of_plain = read(tmp_path / "e.parquet", smooth=False)
    np.testing.assert_array_equal(of_plain.vectors([*range(9)]), plain)
    assert of_plain.comparison == SMOOTHED.unsmoothed()


def test_read__a_file_without_smoothed_rows_has_plain_ones(tmp_path: Path) -> None:
    gallery = read(write_file(tmp_path / "e.parquet", unit(9), [f"{row}.png" for row in range(9)]))
    np.testing.assert_array_equal(gallery.vectors([*range(9)]), unit(9))
    assert gallery.comparison.is_plain


def test_read__refuses_what_no_call_wrote(tmp_path: Path) -> None:
    """A file of an earlier version, a mean of another dimension, a number that cannot be."""
    file = write_file(tmp_path / "e.parquet", unit(2), ["a.png", "b.png"])
    for wrong in ('{"mean": [0.1, 0.2]}', '{"alike": 1}', '{"mean": [NaN]}', "no JSON"):
        embeddings.annotate(file, {"comparison": wrong})
        with pytest.raises(ValueError, match=r"e\.parquet.*polygrain embed"):
            read(file)
    facts = {"model": "abc", "dim": "8", "root": "/photos", "images": "-", "axes": "4"}
    embeddings.write(file, {"path": ["a.png"], "embedding": unit(1)}, facts)
    with pytest.raises(ValueError, match=r"lack comparison.*polygrain embed"):
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
