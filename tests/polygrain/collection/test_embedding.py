import csv
import os
import shutil
from io import BytesIO
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageOps

from polygrain.collection import embedding
from polygrain.collection import file as embeddings
from polygrain.collection.collection import read
from polygrain.collection.embedding import Wanted, embed, is_current, rejected_file, write
from polygrain.collection.listing import find
from polygrain.collection.postprocessing import comparison as comparing
from polygrain.collection.postprocessing import known
from polygrain.collection.postprocessing.comparison import Comparison
from polygrain.collection.postprocessing.comparisons import Comparisons
from polygrain.collection.postprocessing.diffusion import Smoothing
from polygrain.collection.postprocessing.strength import Chosen
from polygrain.compute.vectors import unit_rows
from polygrain.encoder.model import load
from polygrain.sources.decode import FORMATS


def vectors(file: Path) -> np.ndarray:
    column = pq.read_table(file).column("embedding").combine_chunks()
    return column.flatten().to_numpy().reshape(len(column), -1)


def test_embed__files_and_images_one_by_one(fused: Path, shared_photos: Path) -> None:
    model, files = load(fused), sorted(shared_photos.rglob("*.png"))[:5]
    expected = [model(model.transform(Image.open(file))[None])[0].numpy() for file in files]
    np.testing.assert_allclose(embed(model, files, batch=2), expected, atol=1e-5)
    np.testing.assert_allclose(embed(model, [Image.open(file) for file in files]), expected, atol=1e-5)
    assert embed(model, []).shape == (0, model.dim)
    np.testing.assert_allclose(embed(model, (file for file in files), batch=2), expected, atol=1e-5)
    for one in (files[0], str(files[0]), Image.open(files[0])):
        np.testing.assert_allclose(embed(model, one), expected[:1], atol=1e-5)


def test_embed__one_that_cannot_be_read_is_named_or_left_out(fused: Path, photos: Path) -> None:
    model, files = load(fused), sorted(photos.rglob("*.png"))[:5]
    rows = embed(model, [files[0], *files[3:]])
    for file in files[1:3]:
        file.write_bytes(file.read_bytes()[:-200])
    for images in (files, [Image.open(BytesIO(file.read_bytes())) for file in files]):
        with pytest.raises(ValueError, match=r"truncated.*skip=True"):
            embed(model, images)
        found, left = embed(model, iter(images), batch=2, skip=True)
        np.testing.assert_allclose(found, rows, atol=1e-5)
        assert [*left] == [1, 2] and "truncated" in left[1]
    assert embed(model, [files[0], photos / "gone.png"], skip=True)[1] == {1: "there is no such file"}
    with pytest.raises(ValueError, match="it is a folder: give its images"):
        embed(model, photos)
    with pytest.raises(ValueError, match="it is a ndarray: give a file, or PIL's"):
        embedding.prepared(model, np.zeros((9, 9, 3)))


def test_embed__an_opened_image_is_seen_as_its_file(fused: Path, shared_photos: Path, tmp_path: Path) -> None:
    model, file, shown = load(fused), tmp_path / "a.gif", Image.open(next(shared_photos.rglob("*.png"))).convert("RGB")
    Image.new("RGB", shown.size, "white").save(file, save_all=True, append_images=[shown])
    with Image.open(file) as opened:
        np.testing.assert_array_equal(embed(model, opened), embed(model, file))
    with pytest.raises(ValueError, match="one colour only"):
        embed(model, Image.new("RGB", (64, 64)))


def test_write__rows_metadata_and_what_is_left_out(fused: Path, photos: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(embedding, "PART", 10)
    (photos / "bars/class1/1.png").write_bytes(b"no image")
    (photos / "notes.txt").write_text("no image")
    listing, output, model = find(photos), tmp_path / "e.parquet", load(fused)
    write(model, "abc", listing, output, batch=4)
    table = pq.read_table(output)
    readable = [path for path in listing.paths if path != "bars/class1/1.png"]
    assert table.column("path").to_pylist() == readable
    assert str(table.schema.field("embedding").type) == "fixed_size_list<element: float>[24]"
    np.testing.assert_allclose(vectors(output), embed(model, [photos / path for path in readable]), atol=1e-5)
    metadata = table.schema.metadata
    assert (metadata[b"model"], metadata[b"dim"], metadata[b"root"]) == (b"abc", b"24", str(photos.resolve()).encode())
    with rejected_file(output).open(newline="") as lines:
        assert [tuple(row.values()) for row in csv.DictReader(lines)] == [
            ("bars/class1/1.png", f"not readable as {', '.join(FORMATS)}"),
            ("notes.txt", "not an image"),
        ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.parquet", "e.rejected.csv", "photos"]


def test_write__a_folder_that_moved_is_not_embedded_anew(
    fused: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a file only looks the same, by name, size and time, its bytes decide."""
    output, model, moved = tmp_path / "e.parquet", load(fused), tmp_path / "moved"
    write(model, "abc", find(photos), output)
    rows, counted = vectors(output), Mock(wraps=embedding.embed_pictures)
    monkeypatch.setattr(embedding, "embed_pictures", counted)
    photos.rename(moved)
    with Image.open(moved / "bars/class1/1.png") as image:
        image.save(moved / "bars/class1/1.bmp")
        image.rotate(90, expand=True).resize(image.size).save(moved / "bars/class1/2.bmp")
    write(model, "abc", find(moved), output)
    assert pq.read_schema(output).metadata[b"root"] == str(moved.resolve()).encode()
    shutil.copytree(moved, tmp_path / "copy")
    same, other = (tmp_path / "copy/bars/class1" / name for name in ("1.bmp", "2.bmp"))
    shutil.copystat(same, other), other.replace(same)
    write(model, "abc", find(tmp_path / "copy"), output)
    assert sum(len(call.args[1]) for call in counted.call_args_list) == 2 + 1
    write(model, "abc", find(tmp_path / "copy"), tmp_path / "anew.parquet")
    np.testing.assert_allclose(vectors(output), vectors(tmp_path / "anew.parquet"), atol=1e-5)
    table = pq.read_table(output, columns=["path"])["path"].to_pylist()
    np.testing.assert_array_equal(np.delete(vectors(output), table.index("bars/class1/1.bmp"), 0), rows)


def test_write__a_folder_that_changed_embeds_what_is_new(
    fused: Path, photos: Path, tmp_path: Path, monkeypatch
) -> None:
    output, model = tmp_path / "e.parquet", load(fused)
    write(model, "abc", find(photos), output)
    (photos / "bars/class1/1.png").unlink()
    Image.open(photos / "dots/class1/1.png").rotate(90).save(photos / "bars/class1/0.png")
    Image.open(photos / "dots/class1/1.png").save(photos / "a new one.png")
    counted = Mock(wraps=embedding.embed_pictures)
    monkeypatch.setattr(embedding, "embed_pictures", counted)
    write(model, "abc", find(photos), output)
    assert sum(len(call.args[1]) for call in counted.call_args_list) == 2
    write(model, "abc", find(photos), tmp_path / "anew.parquet")
    tables = [pq.read_table(file) for file in (output, tmp_path / "anew.parquet")]
    assert tables[0].schema.equals(tables[1].schema, check_metadata=True)
    assert tables[0]["path"].to_pylist() == tables[1]["path"].to_pylist() == find(photos).paths
    np.testing.assert_allclose(vectors(output), vectors(tmp_path / "anew.parquet"), atol=1e-5)
    write(model, "other", find(photos), output)
    assert sum(len(call.args[1]) for call in counted.call_args_list) == 2 + 24 + 24


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """24 images are enough for a mean of their own, and are smoothed; what was said when it was chosen how far."""
    asked: list[int | None] = []

    def choose(*_: object, alike: int | None) -> Chosen:
        asked.append(alike)
        return Chosen(Smoothing(0.9, 5, 2.0), "as the test says")

    for module in (embedding, comparing, known):
        monkeypatch.setattr(module, "FEWEST", 24)
    monkeypatch.setattr(comparing.strength, "choose", choose)
    return asked


def compared(file: Path) -> Comparison:
    return Comparison.from_json(embeddings.metadata(file)["comparison"])


def test_write__less_the_mean_and_smoothed_beside_it(
    fused: Path, photos: Path, shared_photos: Path, tmp_path: Path, many: list
) -> None:
    output, model = tmp_path / "e.parquet", load(fused)
    write(model, "abc", find(photos), output)
    assert "smoothed" not in pq.read_schema(output).names and not is_current(output, "abc", find(photos), True)
    write(model, "abc", find(photos), output, smooth=True)
    given = embed(model, [photos / path for path in find(photos).paths])
    mean = given.mean(0, dtype=np.float64)
    plain = np.array([(row - mean) / np.linalg.norm(row - mean) for row in given])
    np.testing.assert_allclose(vectors(output), plain, atol=1e-5)
    np.testing.assert_allclose(compared(output).mean, mean, atol=1e-6)
    np.testing.assert_allclose(read(output).vectors([*range(24)]), compared(output).rows(given), atol=1e-5)
    assert np.abs(read(output).vectors([*range(24)]) - plain).max() > 0.01


def test_write__images_that_come_later_take_the_mean_as_it_is(fused, photos, tmp_path, many, caplog) -> None:
    caplog.set_level("INFO")
    output, model = tmp_path / "e.parquet", load(fused)
    write(model, "abc", find(photos), output)
    mean = np.array(compared(output).mean)
    for i in range(9):
        ImageOps.expand(Image.new("RGB", (62, 46), (250, 25 * i, 250)), 1).save(photos / f"{i}.png")
    write(model, "abc", find(photos), output)
    np.testing.assert_array_equal(compared(output).mean, mean)
    given = embed(model, [photos / path for path in find(photos).paths])
    np.testing.assert_allclose(vectors(output), unit_rows(given - mean), atol=1e-5)
    assert "moved away" in caplog.text and "--choose" in caplog.text
    write(model, "abc", find(photos), output, wanted=Wanted(anew=True))
    np.testing.assert_allclose(compared(output).mean, given.mean(0), atol=1e-5)


def test_write__rows_are_compared_as_before_unless_something_else_is_wanted(fused, photos, tmp_path, many) -> None:
    output, model = tmp_path / "e.parquet", load(fused)

    def written(**words: object) -> Comparison:
        write(model, "abc", find(photos), output, smooth=True, wanted=Wanted(**words))
        return compared(output)

    assert written().alike is None and written(alike=8).alike == 8 and many == [None, 8]
    kept = written()  # how many are alike is said once
    Image.linear_gradient("L").save(photos / "one more.png")
    assert written() == written(alike=8) == kept and many == [None, 8]
    chosen = written(anew=True)
    assert many == [None, 8, 8] and chosen.alike == 8 and chosen.mean != kept.mean


@pytest.mark.parametrize("change", ["touched", "copied", "earlier version"])
def test_write__same_bytes_are_not_embedded_again(fused, photos, tmp_path, many, monkeypatch, change: str) -> None:
    output, model = tmp_path / "e.parquet", load(fused)
    write(model, "abc", find(photos), output, smooth=True, wanted=Wanted(alike=8))
    kept, rows = compared(output), vectors(output)
    if change == "copied":
        photos = shutil.copytree(photos, tmp_path / "copy", copy_function=shutil.copyfile)
    elif change == "touched":
        for file in photos.rglob("*.png"):
            os.utime(file, (1e9, 1e9))
    else:  # whose states had no inode
        table = pq.read_table(output)
        states = [state.rpartition(" ")[0] for state in table["state"].to_pylist()]
        pq.write_table(table.set_column(2, "state", [states]), output)
    monkeypatch.setattr(embedding, "embed_pictures", Mock(side_effect=AssertionError))
    write(model, "abc", find(photos), output, smooth=True)
    assert compared(output) == kept and many == [8] and is_current(output, "abc", find(photos), True)
    np.testing.assert_allclose(vectors(output), rows, atol=1e-5)


@pytest.mark.parametrize(("digest", "is_same"), [("abc", True), ("other", False)])
def test_write__what_was_said_stays_where_no_row_does(fused, photos, tmp_path, many, digest, is_same) -> None:
    """By another model mean and smoothing are chosen anew."""
    output, model = tmp_path / "e.parquet", load(fused)
    write(model, "abc", find(photos), output, smooth=True, wanted=Wanted(alike=8))
    kept = compared(output)
    for file in photos.rglob("*.png"):
        Image.open(file).rotate(90).save(file)
    write(model, digest, find(photos), output, smooth=True)
    assert compared(output).alike == 8 and (compared(output) == kept) == is_same


def test_write__other_pixels_of_the_same_size_and_time(fused: Path, photos: Path, tmp_path: Path) -> None:
    output, model = tmp_path / "e.parquet", load(fused)
    for turned in (0, 180):
        with Image.open(photos / "bars/class1/1.png") as image:
            image.rotate(turned).save(photos / "a.bmp")
        os.utime(photos / "a.bmp", (1e9, 1e9))
        write(model, "abc", find(photos), output)
    np.testing.assert_allclose(vectors(output)[:1], embed(model, [photos / "a.bmp"]), atol=1e-5)


def test_write__few_images_become_many(fused, photos, tmp_path, many) -> None:
    """They get a mean of their own and are smoothed; how many are alike is still known."""
    output, model = tmp_path / "e.parquet", load(fused)
    (photos / "bars/class1/1.png").rename(tmp_path / "1.png")
    write(model, "abc", find(photos), output, smooth=True, wanted=Wanted(alike=6))
    assert compared(output).mean == () and compared(output).alike == 6
    (tmp_path / "1.png").rename(photos / "bars/class1/1.png")
    write(model, "abc", find(photos), output, smooth=True)
    given = embed(model, [photos / path for path in find(photos).paths])
    np.testing.assert_allclose(compared(output).mean, given.mean(0), atol=1e-5)
    assert compared(output).alike == 6 and many == [6, 6]


def test_write__so_few_are_not_smoothed_and_are_not_written_again(fused, photos, tmp_path, many) -> None:
    output, model = tmp_path / "e.parquet", load(fused)
    write(model, "abc", find(photos), output, smooth=True)
    for file in sorted(photos.rglob("*.png"))[5:]:
        file.unlink()
    write(model, "abc", find(photos), output, smooth=True)
    assert len(vectors(output)) == 5 and not embeddings.has_smoothed(output)
    before = output.stat().st_mtime_ns
    write(model, "abc", find(photos), output, smooth=True)
    assert output.stat().st_mtime_ns == before


def test_write__a_task_of_the_model_is_compared_as_the_model_says(fused, photos, tmp_path, many) -> None:
    """By its name; a folder of another name by its own mean, or where it has few images by the model's."""
    model, folder = load(fused), tmp_path / "model"
    shutil.copytree(fused, folder)
    one, other = (Comparison(tuple(np.full(24, value).tolist()), Smoothing(0.5, 3)) for value in (0.01, 0.02))
    Comparisons({"photos": one}, other).write(folder)
    for name, expected in (("photos", one), ("others", None), ("few", other)):
        place = photos if name == "photos" else tmp_path / name
        if name == "others":
            shutil.copytree(photos, place)
        if name == "few":
            shutil.copytree(photos / "bars", place)
        write(model, "abc", find(place), tmp_path / "e.parquet", folder=folder)
        found = compared(tmp_path / "e.parquet")
        given = embed(model, [place / path for path in find(place).paths])
        np.testing.assert_allclose(found.mean, expected.mean if expected else given.mean(0), atol=1e-5)
        assert (found == one) == (name == "photos")
        (tmp_path / "e.parquet").unlink()


def test_write__a_file_of_an_earlier_version_is_written_anew(fused: Path, photos: Path, tmp_path: Path) -> None:
    output, model = tmp_path / "e.parquet", load(fused)
    write(model, "abc", find(photos), output)
    rows, table = vectors(output), pq.read_table(output)
    facts = {name: value for name, value in table.schema.metadata.items() if name != b"comparison"}
    pq.write_table(table.replace_schema_metadata(facts | {b"axes": b"9"}), output)
    write(model, "abc", find(photos), output)
    np.testing.assert_allclose(vectors(output), rows, atol=1e-6)
    assert read(output).comparison.is_plain


@pytest.mark.parametrize("count", [1, 24])
def test_write__equal_images_have_no_direction_and_lose_nothing(fused, tmp_path, many, count) -> None:
    (tmp_path / "same").mkdir()
    for i in range(count):
        Image.linear_gradient("L").save(tmp_path / f"same/{i}.png")
    output, model = tmp_path / "e.parquet", load(fused)
    write(model, "abc", find(tmp_path / "same"), output, smooth=True)
    assert np.isfinite(vectors(output)).all() and len(read(output)) == count
    Image.radial_gradient("L").save(tmp_path / "same/other.png")
    write(model, "abc", find(tmp_path / "same"), output, smooth=True)
    given = embed(model, [tmp_path / "same" / path for path in find(tmp_path / "same").paths])
    np.testing.assert_allclose(vectors(output)[-1], compared(output).plain(given)[-1], atol=1e-4)


def test_write__remembers_where_its_model_is_now(fused: Path, photos: Path, tmp_path: Path) -> None:
    output, model = tmp_path / "e.parquet", load(fused)
    write(model, "abc", find(photos), output, folder=tmp_path / "here")
    before = read(output).vectors([*range(24)])
    write(model, "abc", find(photos), output, folder=tmp_path / "there")
    assert embeddings.metadata(output)["folder"] == os.fsencode(tmp_path / "there")
    np.testing.assert_array_equal(read(output).vectors([*range(24)]), before)


def test_write__leaves_nothing_where_no_image_can_be_read(fused: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/a.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match="none of the 1 images"):
        write(load(fused), "abc", find(tmp_path / "photos"), tmp_path / "e.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


def test_write__one_process_at_a_time(fused: Path, photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "e.parquet"
    with embedding.locked(tmp_path / "e.parquet.partial"), pytest.raises(ValueError, match="another process writes"):
        write(load(fused), "abc", find(photos), output)
    assert not output.exists()


def test_write__bombs_are_left_out_by_their_header(fused: Path, photos: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("polygrain.sources.decode.MOST_PIXELS", 100 * 100)
    Image.new("1", (101, 100)).save(photos / "bomb.png")
    write(load(fused), "abc", find(photos), tmp_path / "e.parquet")
    assert "101 x 100 pixels, at most 10000 are decoded" in rejected_file(tmp_path / "e.parquet").read_text()


def test_write__goes_on_where_it_was_stopped(fused: Path, shared_photos: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(embedding, "PART", 5)
    model, listing = load(fused), find(shared_photos)
    write(model, "abc", listing, tmp_path / "whole.parquet", batch=5)
    counted = Mock(wraps=embedding.embed_pictures)
    stopping = Mock(side_effect=lambda *words: counted(*words) if counted.call_count < 3 else 1 / 0)
    monkeypatch.setattr(embedding, "embed_pictures", stopping)
    with pytest.raises(ZeroDivisionError):
        write(model, "abc", listing, tmp_path / "e.parquet", batch=5)
    assert not (tmp_path / "e.parquet").exists()
    counted.reset_mock()
    write(model, "abc", listing, tmp_path / "e.parquet", batch=5)
    assert counted.call_count == 2
    assert (tmp_path / "e.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_write__a_folder_that_is_away_for_a_moment_loses_nothing(fused, photos, tmp_path, monkeypatch, caplog) -> None:
    """Away while it is embedded: the call stops, and the next one goes on; away before that: it is said."""
    monkeypatch.setattr(embedding, "PART", 4)
    model, output, away = load(fused), tmp_path / "e.parquet", tmp_path / "away"
    write(model, "abc", find(photos), tmp_path / "whole.parquet", batch=4)
    counted = Mock(wraps=embedding.embed_pictures)

    def leave(*words: object) -> np.ndarray:
        if not away.exists():
            (photos / "dots").replace(away)
        return counted(*words)

    monkeypatch.setattr(embedding, "embed_pictures", leave)
    with pytest.raises(ValueError, match=r"dots/class\d/\d\.png cannot be read .*start the run again"):
        write(model, "abc", find(photos), output, batch=4)
    away.replace(photos / "dots")
    monkeypatch.setattr(embedding, "embed_pictures", counted)
    write(model, "abc", find(photos), output, batch=4)
    assert counted.call_count == 6 and output.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    (photos / "dots").replace(away)
    write(model, "abc", find(photos), output)
    assert "drops 12 images that are gone" in caplog.text and counted.call_count == 6
