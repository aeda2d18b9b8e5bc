"""A collection as its users hold it."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from polygrain import Collection, embed
from polygrain.collection.maker import Maker
from polygrain.collection.postprocessing import Comparison
from polygrain.collection.postprocessing.comparisons import Comparisons
from polygrain.encoder.model import load


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/polygrain"


def test_search__finds_an_image_by_itself_and_then_its_class(fused: Path, shared_photos: Path) -> None:
    shoes, query = Collection.of(shared_photos, fused), shared_photos / "dots/class2/1.png"
    (hits,) = shoes.search(query, k=3)
    assert hits[0].path == "dots/class2/1.png" and hits[0].score == pytest.approx(1, abs=1e-5)
    assert [hit.score for hit in hits] == sorted([hit.score for hit in hits], reverse=True)
    for found in shoes.search([query, Image.open(query)], k=3):  # a batch of two may round otherwise than one
        assert [hit.path for hit in found] == [hit.path for hit in hits]
        np.testing.assert_allclose([hit.score for hit in found], [hit.score for hit in hits], atol=2e-6)
    assert len(shoes) == len(shoes.paths) == 24
    given = embed(load(fused), query)
    np.testing.assert_allclose(shoes.query(given), shoes.query(query), atol=1e-6)
    np.testing.assert_allclose((shoes.rows @ shoes.query(given)[0]).max(), hits[0].score, atol=1e-6)


def test_of__is_kept_in_the_cache_or_a_file_and_saved_from_there(fused: Path, photos: Path, cache: Path) -> None:
    for file in (None, photos.parent / "e.parquet"):
        shoes = Collection.of(photos, str(fused), file=file)
        assert shoes.file.place == (file or next(cache.glob("*.parquet")))
        saved = photos.parent / "saved.parquet"
        shoes.save(saved)
        opened = Collection.open(saved)
        np.testing.assert_array_equal(opened.rows, shoes.rows)
        assert opened.paths == shoes.paths and opened.facts == shoes.facts and opened.root == photos.resolve()


def test_update__gives_the_collection_as_its_images_are_now(fused: Path, photos: Path, caplog) -> None:
    before = Collection.of(photos, fused, file=photos.parent / "e.parquet")
    paths, rows = before.paths, before.rows
    (photos / "bars/class1/1.png").unlink()
    Image.open(photos / "dots/class1/1.png").rotate(90).save(photos / "new.png")
    after = before.update()
    assert set(after.paths) == {*paths, "new.png"} - {"bars/class1/1.png"} and "drops 1 image without" in caplog.text
    np.testing.assert_array_equal(before.rows, rows)
    assert Collection.open(photos.parent / "e.parquet").paths == after.paths


def test_update__of_those_that_a_csv_names(fused: Path, photos: Path) -> None:
    (photos / "list.csv").write_text("path\nbars/class1/1.png\ndots/class1/1.png\n")
    Collection.of(photos / "list.csv", fused, file=photos / "e.parquet")
    (photos / "list.csv").write_text("path\nbars/class1/1.png\ndots/class1/0.png\n")
    assert Collection.open(photos / "e.parquet").update().paths == ["bars/class1/1.png", "dots/class1/0.png"]


def test_open__images_that_have_moved(fused: Path, photos: Path, tmp_path: Path) -> None:
    """Their bytes prove that they are the same; others are refused, and without a word they are missed."""
    shoes, moved = Collection.of(photos, fused, file=tmp_path / "e.parquet"), tmp_path / "moved"
    photos.rename(moved)
    with pytest.raises(ValueError, match=r"is not there: put the images back, name their folder with --root"):
        _ = Collection.open(tmp_path / "e.parquet").images
    opened = Collection.open(tmp_path / "e.parquet", root=moved)
    assert opened.images.image(shoes.paths[0]).size and opened.root == moved.resolve()
    opened.save(tmp_path / "saved.parquet")
    assert Collection.open(tmp_path / "saved.parquet").root == moved.resolve()
    assert opened.update().facts.root == moved.resolve()
    file = moved / shoes.paths[0]
    Image.open(file).rotate(90).save(file)
    for wrong in (moved, tmp_path / "nowhere"):
        with pytest.raises(ValueError, match=r"is not the image that .*e\.parquet has a row of|is no folder"):
            Collection.open(tmp_path / "e.parquet", root=wrong)


def test_open__refuses_another_model(fused: Path, photos: Path, tmp_path: Path) -> None:
    model, file = shutil.copytree(fused, tmp_path / "model"), tmp_path / "e.parquet"
    Collection.of(photos, model, file=file)
    (model / "config.json").write_text((model / "config.json").read_text() + "\n")
    with pytest.raises(ValueError, match=rf"was made by model .*{model} is another one now"):
        Collection.open(file)
    with pytest.raises(ValueError, match=rf"`polygrain embed {photos} -o {file} --model {model}`"):
        Collection.open(file, model)
    assert len(Collection.open(file, fused)) == 24


def test_open__a_file_is_read_once(fused: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Collection.of(photos, fused, file=tmp_path / "e.parquet")
    opened, real = [], pq.ParquetFile
    monkeypatch.setattr(pq, "ParquetFile", lambda *words, **more: opened.append(words) or real(*words, **more))
    monkeypatch.setattr(pq, "read_schema", lambda *_: opened.append("schema"))
    monkeypatch.setattr(pq, "read_metadata", lambda *_: opened.append("metadata"))
    Collection.open(tmp_path / "e.parquet").search(photos / "dots/class2/1.png")
    assert len(opened) == 1


@pytest.mark.parametrize("name", ["e.csv", "folder.parquet", "none/e.parquet"])
def test_of__a_file_that_cannot_be_written_is_told_before_the_work(fused, photos, tmp_path, name: str) -> None:
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises(ValueError, match=r"does not end in|is a folder: name|is not a folder: make"):
        Collection.of(photos, tmp_path / "no model", file=tmp_path / name)


def test_update__asks_the_folder_anew(fused: Path, photos: Path, tmp_path: Path) -> None:
    """How its tasks are compared may have changed; another model embeds nothing under the name of the earlier."""
    model = Path(shutil.copytree(fused, tmp_path / "data/choice"))
    (tmp_path / "params.yaml").write_text(f"paths: {{shoes: '{photos}'}}")
    Comparisons({"shoes": Comparison((0.01,) * 24)}).write(model)
    shoes = Collection.of(photos, model, file=tmp_path / "e.parquet")
    assert shoes.facts.comparison.mean == (0.01,) * 24 and shoes.facts.task == "shoes"
    Comparisons({"shoes": Comparison((0.02,) * 24)}).write(model)
    assert shoes.update().facts.comparison.mean == (0.02,) * 24
    (model / "config.json").write_text((model / "config.json").read_text() + "\n")
    with pytest.raises(ValueError, match="is another model now"):
        shoes.update()


def test_update__is_not_smoothed_where_that_was_not_wanted(fused: Path, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "few").mkdir()
    for row, file in enumerate(sorted(photos.rglob("*.png"))[:3]):
        shutil.copy(file, tmp_path / f"few/{row}.png")
    few = Collection.of(tmp_path / "few", fused, file=tmp_path / "e.parquet", smooth=False)
    assert few.update().facts.smooth == few.facts.smooth == "no"


def test_of__the_source_that_was_named_last_stays(fused: Path, photos: Path, tmp_path: Path) -> None:
    file, every = tmp_path / "e.parquet", Collection.of(photos, fused).paths
    (photos / "all.csv").write_text("path\n" + "".join(f"{path}\n" for path in every))
    assert Collection.of(photos / "all.csv", fused, file=file).facts.source == photos.resolve() / "all.csv"
    assert Collection.of(photos, fused, file=file).facts.source is None
    with pytest.raises(ValueError, match="alike is 1"):
        Collection.of(photos, fused, file=file, alike=1)


def test_by__has_a_file_of_its_own(fused: Path, photos: Path, cache: Path) -> None:
    (photos / "two.csv").write_text("path\nbars/class1/1.png\ndots/class1/1.png\n")
    whole = Collection.of(photos, fused)
    two = Collection.of(photos / "two.csv", fused, file=photos / "e.parquet")
    assert two.by(Maker(fused)).paths == two.paths
    assert Collection.open(whole.file.place).paths == whole.paths
