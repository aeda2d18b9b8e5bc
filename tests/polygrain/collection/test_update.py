"""The file of a collection is brought up to date."""

import csv
import os
import shutil
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageOps

from polygrain.collection import asked as asking
from polygrain.collection import update as updating
from polygrain.collection.asked import Asked
from polygrain.collection.embedding import embed
from polygrain.collection.file import File
from polygrain.collection.listing import find
from polygrain.collection.maker import Maker
from polygrain.collection.postprocessing import comparison as comparing
from polygrain.collection.postprocessing.comparison import Comparison
from polygrain.collection.postprocessing.comparisons import Comparisons
from polygrain.collection.postprocessing.diffusion import Smoothing
from polygrain.collection.postprocessing.strength import Chosen
from polygrain.collection.update import rejected_file, update
from polygrain.compute.vectors import unit_rows
from polygrain.encoder.model import Model
from polygrain.sources.decode import FORMATS
from polygrain.store.drafts import put

PLAIN, PLAINLY = Asked(smooth=False), Comparison()


def write(
    model: Model, digest: str, images, file: Path, how: Asked = PLAIN, batch: int = 64, folder: Path | None = None
) -> None:
    update(Maker(folder, model, digest), images, file, how, batch)


def vectors(file: Path) -> np.ndarray:
    return File(file).rows("plain")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """24 images are too few for a mean of their own."""
    for module in (asking, comparing):
        monkeypatch.setattr(module, "FEWEST_CENTRED", 99)


def test_update__rows_metadata_and_what_is_left_out(model: Model, photos: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(updating, "PART", 10)
    (photos / "bars/class1/1.png").write_bytes(b"no image")
    (photos / "notes.txt").write_text("no image")
    listing, output = find(photos), tmp_path / "e.parquet"
    write(model, "abc", listing, output, batch=4)
    table = pq.read_table(output)
    readable = [path for path in listing.paths if path != "bars/class1/1.png"]
    assert table.column("path").to_pylist() == readable
    assert str(table.schema.field("searched").type) == "fixed_size_list<element: float>[24]"
    given = embed(model, [photos / path for path in readable])
    np.testing.assert_allclose(vectors(output), unit_rows(given - given.mean(0)), atol=1e-5)
    metadata = table.schema.metadata
    assert (metadata[b"model"], metadata[b"dim"], metadata[b"root"]) == (b"abc", b"24", str(photos.resolve()).encode())
    with rejected_file(output).open(newline="") as lines:
        assert [tuple(row.values()) for row in csv.DictReader(lines)] == [
            ("bars/class1/1.png", f"not readable as {', '.join(FORMATS)}"),
            ("notes.txt", "not an image"),
        ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.parquet", "e.rejected.csv", "photos"]


def test_update__a_folder_that_moved_is_not_embedded_anew(
    model: Model, photos: Path, tmp_path: Path, few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a file only looks the same, by name, size and time, its bytes decide."""
    output, moved = tmp_path / "e.parquet", tmp_path / "moved"
    write(model, "abc", find(photos), output)
    rows, counted = vectors(output), Mock(wraps=updating.embed_pictures)
    monkeypatch.setattr(updating, "embed_pictures", counted)
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


def test_update__a_folder_that_changed_embeds_what_is_new(
    model: Model, photos: Path, tmp_path: Path, few: None, monkeypatch
) -> None:
    output = tmp_path / "e.parquet"
    write(model, "abc", find(photos), output)
    (photos / "bars/class1/1.png").unlink()
    Image.open(photos / "dots/class1/1.png").rotate(90).save(photos / "bars/class1/0.png")
    Image.open(photos / "dots/class1/1.png").save(photos / "a new one.png")
    counted = Mock(wraps=updating.embed_pictures)
    monkeypatch.setattr(updating, "embed_pictures", counted)
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

    for module in (asking, comparing):
        monkeypatch.setattr(module, "FEWEST_CENTRED", 24)
    monkeypatch.setattr(asking, "FEWEST_SMOOTHED", 24)
    monkeypatch.setattr(comparing.strength, "choose", choose)
    return asked


def compared(file: Path) -> Comparison:
    return File(file).facts.comparison


def test_update__less_the_mean_and_smoothed_beside_it(
    model: Model, photos: Path, shared_photos: Path, tmp_path: Path, many: list
) -> None:
    output = tmp_path / "e.parquet"
    write(model, "abc", find(photos), output)
    assert not File(output).is_smoothed
    write(model, "abc", find(photos), output, Asked())
    given = embed(model, [photos / path for path in find(photos).paths])
    mean = given.mean(0, dtype=np.float64)
    plain = np.array([(row - mean) / np.linalg.norm(row - mean) for row in given])
    np.testing.assert_allclose(vectors(output), plain, atol=1e-5)
    np.testing.assert_allclose(compared(output).mean, mean, atol=1e-6)
    np.testing.assert_allclose(File(output).rows("searched"), compared(output).rows(given), atol=1e-5)
    assert np.abs(File(output).rows("searched") - plain).max() > 0.01


def test_update__images_that_come_later_take_the_mean_as_it_is(model, photos, tmp_path, many, caplog) -> None:
    caplog.set_level("INFO")
    output = tmp_path / "e.parquet"
    write(model, "abc", find(photos), output)
    mean = np.array(compared(output).mean)
    for i in range(9):
        ImageOps.expand(Image.new("RGB", (62, 46), (250, 25 * i, 250)), 1).save(photos / f"{i}.png")
    write(model, "abc", find(photos), output)
    np.testing.assert_array_equal(compared(output).mean, mean)
    given = embed(model, [photos / path for path in find(photos).paths])
    np.testing.assert_allclose(vectors(output), unit_rows(given - mean), atol=1e-5)
    assert "--choose" in caplog.text and "--choose" in caplog.text
    write(model, "abc", find(photos), output, Asked(choose=True, smooth=False))
    np.testing.assert_allclose(compared(output).mean, given.mean(0), atol=1e-5)


def test_update__rows_are_compared_as_before_unless_something_else_is_wanted(model, photos, tmp_path, many) -> None:
    output = tmp_path / "e.parquet"

    def written(**words: object) -> Comparison:
        write(model, "abc", find(photos), output, Asked(**words))
        return compared(output)

    assert written().alike is None and written(alike=8).alike == 8 and many == [None, 8]
    kept = written()  # how many are alike is said once
    Image.linear_gradient("L").save(photos / "one more.png")
    assert written() == written(alike=8) == kept and many == [None, 8]
    chosen = written(choose=True)
    assert many == [None, 8, 8] and chosen.alike == 8 and chosen.mean != kept.mean


@pytest.mark.parametrize("change", ["touched", "copied", "earlier version"])
def test_update__same_bytes_are_not_embedded_again(model, photos, tmp_path, many, monkeypatch, change: str) -> None:
    output = tmp_path / "e.parquet"
    write(model, "abc", find(photos), output, Asked(alike=8))
    kept, rows = compared(output), vectors(output)
    if change == "copied":
        photos = shutil.copytree(photos, tmp_path / "copy", copy_function=shutil.copyfile)
    elif change == "touched":
        for file in photos.rglob("*.png"):
            os.utime(file, (1e9, 1e9))
    else:  # plain rows were called `embedding`, smoothed ones `smoothed`, and states had no inode
        table = pq.read_table(output)
        states = [state.rpartition(" ")[0] for state in table["state"].to_pylist()]
        names = {"searched": "smoothed", "plain": "embedding"}
        facts = {name: table.schema.metadata[name] for name in (b"model", b"dim", b"root", b"images", b"comparison")}
        table = table.set_column(table.column_names.index("state"), "state", [states])
        table = table.rename_columns([names.get(name, name) for name in table.column_names])
        pq.write_table(table.replace_schema_metadata(facts), output)
    monkeypatch.setattr(updating, "embed_pictures", Mock(side_effect=AssertionError))
    write(model, "abc", find(photos), output, Asked())
    assert compared(output) == kept and many == [8] and File(output).facts.images == find(photos).fingerprint()
    np.testing.assert_allclose(vectors(output), rows, atol=1e-5)


@pytest.mark.parametrize(("digest", "is_same"), [("abc", True), ("other", False)])
def test_update__what_was_said_stays_where_no_row_does(model, photos, tmp_path, many, digest, is_same) -> None:
    """By another model mean and smoothing are chosen anew."""
    output = tmp_path / "e.parquet"
    write(model, "abc", find(photos), output, Asked(alike=8))
    kept = compared(output)
    for file in photos.rglob("*.png"):
        Image.open(file).rotate(90).save(file)
    write(model, digest, find(photos), output, Asked())
    assert compared(output).alike == 8 and (compared(output) == kept) == is_same


def test_update__other_pixels_of_the_same_size_and_time(model: Model, photos: Path, tmp_path: Path, few: None) -> None:
    output = tmp_path / "e.parquet"
    for turned in (0, 180):
        with Image.open(photos / "bars/class1/1.png") as image:
            image.rotate(turned).save(photos / "a.bmp")
        os.utime(photos / "a.bmp", (1e9, 1e9))
        write(model, "abc", find(photos), output)
    np.testing.assert_allclose(vectors(output)[:1], embed(model, [photos / "a.bmp"]), atol=1e-5)


def test_update__few_images_become_many(model, photos, tmp_path, many) -> None:
    """They get a mean of their own and are smoothed; how many are alike is still known."""
    output = tmp_path / "e.parquet"
    (photos / "bars/class1/1.png").rename(tmp_path / "1.png")
    write(model, "abc", find(photos), output, Asked(alike=6))
    assert compared(output).mean == () and compared(output).alike == 6
    (tmp_path / "1.png").rename(photos / "bars/class1/1.png")
    write(model, "abc", find(photos), output, Asked())
    given = embed(model, [photos / path for path in find(photos).paths])
    np.testing.assert_allclose(compared(output).mean, given.mean(0), atol=1e-5)
    assert compared(output).alike == 6 and many == [6, 6]


def test_update__so_few_are_not_smoothed_and_are_not_written_again(model, photos, tmp_path, many) -> None:
    output = tmp_path / "e.parquet"
    write(model, "abc", find(photos), output, Asked())
    for file in sorted(photos.rglob("*.png"))[5:]:
        file.unlink()
    write(model, "abc", find(photos), output, Asked())
    assert len(vectors(output)) == 5 and not File(output).is_smoothed
    before = output.stat().st_mtime_ns
    write(model, "abc", find(photos), output, Asked())
    assert output.stat().st_mtime_ns == before


TASK = Comparison(tuple(np.full(24, 0.01).tolist()), Smoothing(0.5, 3))


def graph(folder: Path, fused: Path, paths: dict[str, Path], default: Comparison = PLAINLY) -> Path:
    """A model in a graph, whose params.yaml says where the images of its tasks lie."""
    shutil.copytree(fused, folder / "data/choice")
    Comparisons(dict.fromkeys(paths, TASK), default).write(folder / "data/choice")
    lines = [f"  {name}: '{os.path.relpath(path, folder)}'" for name, path in paths.items()]
    (folder / "params.yaml").write_text("\n".join(["paths:", *lines]) + "\n")
    return folder / "data/choice"


def test_update__a_task_is_known_by_its_folder_and_not_by_its_name(fused, model, photos, tmp_path, many) -> None:
    """A folder whose name is no slug, two of one name, and a stranger's that is called as a task is."""
    places = {"my-shoes": tmp_path / "My Shoes!", "images": tmp_path / "a/images", "images-2": tmp_path / "b/images"}
    strangers = [tmp_path / "elsewhere/my-shoes", tmp_path / "c/images"]
    for place in (*places.values(), *strangers):
        shutil.copytree(photos, place)
    for file in (file for place in strangers for file in place.rglob("*.png")):
        Image.open(file).rotate(180).save(file)
    choice, output = graph(tmp_path / "run", fused, places), tmp_path / "e.parquet"
    (tmp_path / "link").symlink_to(places["my-shoes"])
    for place in (*places.values(), tmp_path / "link"):
        write(model, "abc", find(place), output, Asked(), folder=choice)
        assert compared(output) == TASK
    mean = embed(model, [strangers[0] / path for path in find(photos).paths]).mean(0)
    for place in strangers:
        write(model, "abc", find(place), output, Asked(), folder=choice)
        np.testing.assert_allclose(compared(output).mean, mean, atol=1e-5)


def test_update__a_task_that_is_named_stays_until_another_is(fused, model, photos, tmp_path, many) -> None:
    choice = graph(tmp_path / "run", fused, {"shoes": tmp_path / "shoes", "bags": tmp_path / "bags"})
    output = tmp_path / "e.parquet"
    for how, is_task in ((Asked("shoes"), True), (Asked(), True), (Asked(choose=True), False), (Asked("bags"), True)):
        write(model, "abc", find(photos), output, how, folder=choice)
        assert (compared(output) == TASK) == is_task
    write(model, "abc", find(photos), output, Asked(alike=9), folder=choice)
    assert compared(output).mean == TASK.mean and compared(output).smoothing != TASK.smoothing
    for file in (output, tmp_path / "new.parquet"):
        with pytest.raises(ValueError, match="no task 'hats'; it knows shoes, bags"):
            write(model, "abc", find(photos), file, Asked("hats"), folder=choice)
        assert not (tmp_path / f"{file.name}.partial").exists()


def test_update__what_is_said_of_a_task_later_holds_behind_the_same_weights(
    fused, model, photos, tmp_path, monkeypatch
) -> None:
    """Nothing is embedded for that."""
    choice, output = graph(tmp_path / "run", fused, {"shoes": photos}), tmp_path / "e.parquet"
    write(model, "abc", find(photos), output, Asked(), folder=choice)
    given = embed(model, [photos / path for path in find(photos).paths])
    monkeypatch.setattr(updating, "embed_pictures", Mock(side_effect=AssertionError))
    for later in (Comparison(TASK.mean, Smoothing(0.9, 6), 8), Comparison(tuple(np.full(24, 0.02).tolist()))):
        Comparisons({"shoes": later}).write(choice)
        write(model, "abc", find(photos), output, Asked(), folder=choice)
        assert compared(output) == later
        np.testing.assert_allclose(File(output).rows("searched"), later.rows(given), atol=1e-5)


def test_update__few_images_of_no_task_take_the_mean_of_the_model(fused, model, photos, tmp_path, many) -> None:
    choice = graph(tmp_path / "run", fused, {"shoes": tmp_path / "shoes"}, default=TASK.unsmoothed())
    write(model, "abc", find(photos / "bars"), tmp_path / "e.parquet", Asked(), folder=choice)
    assert compared(tmp_path / "e.parquet").mean == TASK.mean


def test_update__many_more_images_are_compared_anew(fused, model, photos, tmp_path, many, caplog) -> None:
    """Once there are enough to smooth them, and whenever their number has doubled; a task as its model says."""
    caplog.set_level("INFO")
    few, output = tmp_path / "few", tmp_path / "e.parquet"
    choice = graph(tmp_path / "run", fused, {"shoes": tmp_path / "shoes"}, default=TASK.unsmoothed())
    shutil.copytree(photos, few)
    (few / "bars/class1/1.png").unlink()
    write(model, "abc", find(few), output, Asked(), folder=choice)
    assert compared(output).mean == TASK.mean
    for number, (extra, is_new) in enumerate(((1, True), (23, False), (1, True))):
        before = compared(output)
        for row in range(extra):
            shade = ImageOps.expand(Image.new("RGB", (62, 46), (250, 9 * row, 50 * number)), 1)
            shade.save(few / f"{number}-{row}.png")
        write(model, "abc", find(few), output, Asked(), folder=choice)
        assert (compared(output).mean != before.mean) == is_new
    assert "for 48 images in place of 24" in caplog.text


def test_update__rows_that_hardly_move_stay(model, photos, tmp_path, many) -> None:
    output = tmp_path / "e.parquet"
    write(model, "abc", find(photos), output, Asked())
    before = File(output)
    Image.open(photos / "dots/class1/1.png").rotate(90).save(photos / "bars/class1/0.png")
    write(model, "abc", find(photos), output, Asked())
    after = File(output)
    changed = np.array(before.paths()) == "bars/class1/0.png"
    for name in ("plain", "searched"):
        moved = np.linalg.norm(before.rows(name) - after.rows(name), axis=1)
        assert (moved[changed] > 0.01).all() and not ((moved > 0) & (moved <= 1e-3)).any()
    assert not np.linalg.norm(before.rows("plain") - after.rows("plain"), axis=1)[~changed].any()


def test_update__a_file_of_an_earlier_version_is_written_anew(model: Model, photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "e.parquet"
    write(model, "abc", find(photos), output)
    rows, table = vectors(output), pq.read_table(output)
    facts = {name: value for name, value in table.schema.metadata.items() if name != b"comparison"}
    pq.write_table(table.replace_schema_metadata(facts | {b"axes": b"9"}), output)
    write(model, "abc", find(photos), output)
    np.testing.assert_allclose(vectors(output), rows, atol=1e-6)
    assert File(output).comparison.is_plain


@pytest.mark.parametrize("count", [1, 24])
def test_update__equal_images_have_no_direction_and_lose_nothing(model, tmp_path, many, count) -> None:
    (tmp_path / "same").mkdir()
    for i in range(count):
        Image.linear_gradient("L").save(tmp_path / f"same/{i}.png")
    output = tmp_path / "e.parquet"
    write(model, "abc", find(tmp_path / "same"), output, Asked())
    assert np.isfinite(vectors(output)).all() and File(output).count == count
    Image.radial_gradient("L").save(tmp_path / "same/other.png")
    write(model, "abc", find(tmp_path / "same"), output, Asked())
    given = embed(model, [tmp_path / "same" / path for path in find(tmp_path / "same").paths])
    np.testing.assert_allclose(vectors(output)[-1], compared(output).plain(given)[-1], atol=1e-4)


def test_update__remembers_where_its_model_is_now(model: Model, photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "e.parquet"
    write(model, "abc", find(photos), output, folder=tmp_path / "here")
    before = File(output).rows("searched")
    write(model, "abc", find(photos), output, folder=tmp_path / "there")
    assert File(output).facts.folder == tmp_path / "there"
    np.testing.assert_array_equal(File(output).rows("searched"), before)


def test_update__leaves_nothing_where_no_image_can_be_read(model: Model, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/a.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match="none of the 1 images"):
        write(model, "abc", find(tmp_path / "photos"), tmp_path / "e.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


def test_update__one_process_at_a_time(model: Model, photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "e.parquet"
    with updating.locked(tmp_path / "e.parquet.partial"), pytest.raises(ValueError, match="another process writes"):
        write(model, "abc", find(photos), output)
    assert not output.exists()


def test_update__bombs_are_left_out_by_their_header(model: Model, photos: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("polygrain.sources.decode.MOST_PIXELS", 100 * 100)
    Image.new("1", (101, 100)).save(photos / "bomb.png")
    write(model, "abc", find(photos), tmp_path / "e.parquet")
    assert "101 x 100 pixels, at most 10000 are decoded" in rejected_file(tmp_path / "e.parquet").read_text()


def test_update__goes_on_where_it_was_stopped(model: Model, shared_photos: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(updating, "PART", 5)
    listing = find(shared_photos)
    write(model, "abc", listing, tmp_path / "whole.parquet", batch=5)
    counted = Mock(wraps=updating.embed_pictures)
    stopping = Mock(side_effect=lambda *words: counted(*words) if counted.call_count < 3 else 1 / 0)
    monkeypatch.setattr(updating, "embed_pictures", stopping)
    with pytest.raises(ZeroDivisionError):
        write(model, "abc", listing, tmp_path / "e.parquet", batch=5)
    assert not (tmp_path / "e.parquet").exists()
    counted.reset_mock()
    write(model, "abc", listing, tmp_path / "e.parquet", batch=5)
    assert counted.call_count == 2
    assert (tmp_path / "e.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_update__a_folder_that_is_away_for_a_moment_loses_nothing(model, photos, tmp_path, monkeypatch, caplog) -> None:
    """Away while it is embedded: the call stops, and the next one goes on; away before that: it is said."""
    monkeypatch.setattr(updating, "PART", 4)
    output, away = tmp_path / "e.parquet", tmp_path / "away"
    write(model, "abc", find(photos), tmp_path / "whole.parquet", batch=4)
    counted = Mock(wraps=updating.embed_pictures)

    def leave(*words: object) -> np.ndarray:
        if not away.exists():
            (photos / "dots").replace(away)
        return counted(*words)

    monkeypatch.setattr(updating, "embed_pictures", leave)
    with pytest.raises(ValueError, match=r"dots/class\d/\d\.png cannot be read .*start the run again"):
        write(model, "abc", find(photos), output, batch=4)
    away.replace(photos / "dots")
    monkeypatch.setattr(updating, "embed_pictures", counted)
    write(model, "abc", find(photos), output, batch=4)
    assert counted.call_count == 6 and output.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    (photos / "dots").replace(away)
    write(model, "abc", find(photos), output)
    assert "drops 12 images" in caplog.text and counted.call_count == 6


def test_update__a_kill_between_the_two_files_loses_nothing(model, photos, tmp_path, monkeypatch) -> None:
    (photos / "a.png").write_bytes(b"no image")
    output, puts = tmp_path / "e.parquet", Mock(side_effect=[None, KeyboardInterrupt])
    with monkeypatch.context() as patch:
        patch.setattr(updating, "put", lambda draft, file: puts(draft, file) or put(draft, file))
        with pytest.raises(KeyboardInterrupt):
            write(model, "abc", find(photos), output)
    assert not output.exists()
    write(model, "abc", find(photos), output)
    assert "a.png" in rejected_file(output).read_text() and not (tmp_path / "e.parquet.partial").exists()


def test_update__what_another_process_has_just_written_is_taken_over(model, photos, tmp_path, monkeypatch) -> None:
    output, locked = tmp_path / "e.parquet", updating.locked
    write(model, "abc", find(photos), output)
    Image.open(photos / "dots/class1/1.png").rotate(90).save(photos / "new.png")

    def late(partial: Path) -> object:
        monkeypatch.setattr(updating, "locked", locked)
        write(model, "abc", find(photos), output, Asked(alike=6))
        monkeypatch.setattr(updating, "embed_pictures", Mock(side_effect=AssertionError))
        return locked(partial)

    monkeypatch.setattr(updating, "locked", late)
    write(model, "abc", find(photos), output)
    assert File(output).facts.alike == 6 and len(vectors(output)) == 25
