import csv
import hashlib
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from polygrain.config.lists import Task
from polygrain.sources.archive import find
from polygrain.sources.datasets import load
from polygrain.sources.folder import FolderContent
from polygrain.sources.streams import place
from polygrain.store import arrays, work
from polygrain.store.image_table import TABLE
from stages import images
from tests.helpers import layouts, small, streams

PARAMS = images.Params(
    protocol="classes",
    queries=0.2,
    draw=0,
    side=16,
    shape="crop",
    per_class=images.PerClass(digits=4, glyphs=2, patches=3),
    places=4,
    stored="raw",
    listed_shares=[],
    published_counts=True,
)


def paint(file: Path, colour: int, size: tuple[int, int] = (30, 20)) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    image = Image.new("RGB", size, (colour, 0, 255 - colour))
    image.paste("white", (0, size[1] * 3 // 4, *size))
    image.save(file)


def ingest(
    raw: Path, output: Path, source: str = "folder", params: images.Params = PARAMS, unseen: bool = False
) -> tuple[np.ndarray, list[dict], dict[str, str], str]:
    task = Task.model_construct(source=source, unseen=unseen)
    lists = small.lists().model_copy(update={"tasks": {"t": task}})
    message = images.main(raw, output, task="t", params=params, lists=lists)
    pixels = arrays.open(output / "pixels.zarr")
    with (output / "rejected.csv").open(newline="", encoding="utf-8") as file:
        rejected = {line["path"]: line["reason"] for line in csv.DictReader(file)}
    table = pq.read_table(output / "table.parquet")
    assert table.schema.equals(TABLE)
    assert table.num_rows == len(pixels)
    return pixels[:], table.to_pylist(), rejected, message


def digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_main__labelled_folder(tmp_path: Path) -> None:
    for i, path in enumerate(["b/2.png", "b/1.png", "c/1.png", "a/9.png", "a/1.png"]):
        paint(tmp_path / "raw" / path, 20 * i)
    pixels, rows, rejected, message = ingest(tmp_path / "raw", tmp_path / "out")
    assert [row["path"] for row in rows] == ["a/1.png", "a/9.png", "b/1.png", "b/2.png", "c/1.png"]
    assert [row["label"] for row in rows] == [0, 0, 1, 1, 2]
    assert [row["split"] for row in rows] == ["train"] * 4 + ["test"]
    assert [row["class_name"] for row in rows] == list("aabbc")
    assert pixels[:, 0, 0, 0].tolist() == [80, 60, 20, 0, 40]
    file = tmp_path / "raw/a/1.png"
    assert rows[0] | {"label": 0} == {
        "path": "a/1.png",
        "task": "t",
        "label": 0,
        "class_name": "a",
        "split": "train",
        "width": 30,
        "height": 20,
        "bytes": file.stat().st_size,
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "is_query": rows[0]["is_query"],
        "trains": True,
    }
    assert rejected == {}
    assert message.startswith("5 images of 3 classes: 4 train")


def test_main__the_protocol_says_what_trains(tmp_path: Path) -> None:
    for i in range(100):
        paint(tmp_path / f"raw/{i % 4}/{i}.png", i)
    of = {}
    for name, changes in {
        "classes": {},
        "collection": {"protocol": "collection"},
        "again": {"protocol": "collection", "draw": 1},
    }.items():
        params = PARAMS.model_copy(update=changes)
        of[name] = ingest(tmp_path / "raw", tmp_path / name, params=params)[1]
    drawn = {name: [row["is_query"] for row in rows] for name, rows in of.items()}
    assert [row["trains"] for row in of["classes"]] == [row["split"] == "train" for row in of["classes"]]
    assert [row["trains"] for row in of["collection"]] == [not is_query for is_query in drawn["collection"]]
    assert drawn["classes"] == drawn["collection"] != drawn["again"] and 10 < sum(drawn["classes"]) < 30
    (tmp_path / "raw/0/more.png").write_bytes(b"")
    for i in (0, 4, 8):
        (tmp_path / f"raw/{i % 4}/{i}.png").unlink()
    fewer = ingest(tmp_path / "raw", tmp_path / "fewer")[1]
    queries = {row["path"]: row["is_query"] for row in of["classes"]}
    assert all(queries[row["path"]] == row["is_query"] for row in fewer)
    unseen = ingest(tmp_path / "raw", tmp_path / "unseen", params=params, unseen=True)[1]
    assert not any(row["trains"] for row in unseen)


def test_main__leaves_out_with_the_reason_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polygrain.sources.decode.MOST_PIXELS", 10**6)
    raw = tmp_path / "raw"
    for i, path in enumerate(["a/1.png", "a/3.png", "b/1.png"]):
        paint(raw / path, 20 * i)
    (raw / "a/2.png").write_bytes((raw / "a/1.png").read_bytes())
    (raw / "b/copy.png").write_bytes((raw / "a/1.png").read_bytes())
    (raw / "b/cut.png").write_bytes((raw / "b/1.png").read_bytes()[:60])
    (raw / "b/text.jpg").write_text("x")
    (raw / "b/notes.txt").write_text("x")
    (raw / "b/empty.png").touch()
    paint(raw / "b/large.png", 0, (1001, 1000))
    paint(tmp_path / "secret.png", 99)
    (raw / "b/link.png").symlink_to(tmp_path / "secret.png")
    pixels, rows, rejected, message = ingest(raw, tmp_path / "out")
    assert [row["path"] for row in rows] == ["a/1.png", "a/3.png", "b/1.png"]
    assert pixels[:, 0, 0, 0].tolist() == [0, 20, 40]
    assert list(rejected) == sorted(rejected)
    assert rejected.pop("b/cut.png").startswith("cannot be decoded")
    assert rejected.pop("b/text.jpg").startswith("not readable as")
    assert rejected.pop("b/large.png").startswith("1001 x 1000 pixels")
    assert rejected == {
        "a/2.png": "duplicate of a/1.png",
        "b/copy.png": "duplicate of a/1.png",
        "b/notes.txt": "not an image",
        "b/empty.png": "empty file",
        "b/link.png": "link leads outside the folder",
    }
    assert message.endswith("8 left out")


def test_main__the_same_pixels_in_other_bytes_are_one_picture(tmp_path: Path) -> None:
    for i in range(6):
        paint(tmp_path / f"raw/{i % 2}/{i}.png", i)
    with Image.open(tmp_path / "raw/0/0.png") as image:
        for name, options in {"0/x.webp": {"lossless": True}, "1/x.tiff": {}, "1/y.png": {"compress_level": 1}}.items():
            image.save(tmp_path / "raw" / name, **options)
    _, rows, rejected, message = ingest(tmp_path / "raw", tmp_path / "out")
    assert len(rows) == 6 and message.endswith("3 left out")
    assert rejected == dict.fromkeys(["0/x.webp", "1/x.tiff", "1/y.png"], "same picture as 0/0.png")


def test_main__a_public_set_keeps_them_and_both_are_queries_or_none(tmp_path: Path) -> None:
    layouts.eurosat(tmp_path / "raw", 12)
    files = sorted(tmp_path.rglob("*_[1-6].jpg"))
    for file in files:
        number = int(file.stem.rpartition("_")[2])
        file.with_name(f"{file.stem[:-1]}{number + 6}.jpg").write_bytes(file.read_bytes() + b"x")
    params = PARAMS.model_copy(update={"published_counts": False, "queries": 0.5})
    rows = {row["path"]: row["is_query"] for row in ingest(tmp_path / "raw", tmp_path / "out", "eurosat", params)[1]}
    assert len(rows) == 2 * len(files) and 2 < sum(rows.values()) < len(rows) - 2
    for path, is_query in rows.items():
        start, _, number = path.removesuffix(".jpg").rpartition("_")
        assert rows[f"{start}_{(int(number) + 5) % 12 + 1}.jpg"] == is_query


def test_main__a_folder_that_is_away_for_a_moment_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(9):
        paint(tmp_path / f"raw/{i % 3}/{i}.png", i)

    def leave(raw: Path) -> FolderContent:
        listing = find(raw)
        (raw / "1").rename(tmp_path / "away")
        return listing

    def come_back(raw: Path) -> FolderContent:
        listing = find(raw)
        (tmp_path / "away").rename(raw / "1")
        return listing

    for find_then, message in ((leave, r"1/1\.png cannot be read .*start the run"), (come_back, "changed while it")):
        with monkeypatch.context() as context, pytest.raises(ValueError, match=message):
            context.setattr("polygrain.sources.archive.find", find_then)
            ingest(tmp_path / "raw", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("source", "train", "test"), [("digits", 20, 20), ("glyphs", 52, 52), ("patches", 12, 12)])
def test_main__embedded(tmp_path: Path, source: str, train: int, test: int) -> None:
    for name in ("one", "two"):
        pixels, rows, rejected, _ = ingest(tmp_path / "unread.lock", tmp_path / name / source, source)
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    assert rejected == {}
    assert [row["split"] for row in rows] == ["train"] * train + ["test"] * test
    assert [(row["label"], row["path"]) for row in rows] == sorted((row["label"], row["path"]) for row in rows)
    assert rows[0]["sha256"] == hashlib.sha256(pixels[0].tobytes()).hexdigest()
    classes = {row["class_name"]: row["label"] for row in rows}
    assert [classes[name] for name in sorted(classes)] == list(range(len(classes)))


@pytest.mark.parametrize("name", ["cub", "inshop"])
def test_main__public_data_set(tmp_path: Path, name: str) -> None:
    layouts.WRITERS[name](tmp_path / "raw", 4)
    params = PARAMS.model_copy(update={"published_counts": False})
    pixels, rows, rejected, _ = ingest(tmp_path / "raw", tmp_path / "out", name, params)
    splits = {split: {row["label"] for row in rows if row["split"] == split} for split in {r["split"] for r in rows}}
    assert set(splits) == ({"train", "query", "gallery"} if name == "inshop" else {"train", "test"})
    assert not splits["train"] & set.union(*(classes for split, classes in splits.items() if split != "train"))
    assert [row["label"] for row in rows] == sorted(row["label"] for row in rows) and rejected == {}
    assert all((tmp_path / "raw" / row["path"]).is_file() for row in rows)
    again, rows, _, _ = ingest(tmp_path / "raw", tmp_path / "unseen", name, params, unseen=True)
    assert not [row for row in rows if row["split"] == "train"] and np.array_equal(again, pixels)


def test_main__public_data_set_must_be_complete_and_readable(tmp_path: Path, monkeypatch) -> None:
    layouts.eurosat(tmp_path / "raw", 2)
    with pytest.raises(ValueError, match=r"eurosat has 4 test classes \(10 in its label files\)"):
        ingest(tmp_path / "raw", tmp_path / "out", "eurosat")
    monkeypatch.setattr(load, "check_counts", lambda dataset: None)
    (tmp_path / "raw/eurosat/2750/Forest/Forest_1.jpg").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"differs from the published eurosat: 1 left out, the first: .*Forest_1.jpg"):
        ingest(tmp_path / "raw", tmp_path / "out", "eurosat")
    assert not (tmp_path / "out").exists()


def test_main__flat_and_unseen_folders(tmp_path: Path) -> None:
    for i, path in enumerate(["a/1.png", "b/1.png", "c/1.png"]):
        paint(tmp_path / "raw" / path, 40 * i)
    paint(tmp_path / "flat/1.png", 9)
    _, rows, _, message = ingest(tmp_path / "raw", tmp_path / "out", unseen=True)
    assert [row["split"] for row in rows] == ["test"] * 3 and "0 train" in message
    _, rows, _, message = ingest(tmp_path / "flat", tmp_path / "flat_out")
    assert [(row["label"], row["class_name"], row["split"]) for row in rows] == [(-1, "", "train")]
    assert rows[0]["trains"] and not rows[0]["is_query"] and "1 image " in message and "0 classes" not in message


def test_main__what_cannot_be_used_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    for i in range(5):
        (tmp_path / f"raw/{i}.jpg").write_text("x")
    with pytest.raises(ValueError, match=r"no image can be used; 5 left out, the first: 0\.jpg"):
        ingest(tmp_path / "raw", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def lay_splits(root: Path, names: dict[str, int]) -> None:
    for i, name in enumerate(names):
        for part, shade in (("train", 0), ("val", 100)):
            for j in range(names[name]):
                (root / part / name).mkdir(parents=True, exist_ok=True)
                pixels = np.full((16, 16, 3), shade + 10 * i + j, np.uint8)
                pixels[12:] = 255
                Image.fromarray(pixels).save(root / part / name / f"{name}_{j}_{part}.png")


def test_main__a_list_beside_the_parts_is_stored_less_what_was_left_out(tmp_path: Path) -> None:
    lay_splits(tmp_path / "raw", {"a": 3, "b": 2})
    (tmp_path / "raw/train/a/a_0_train.png").write_bytes(b"no image")
    (tmp_path / "raw/50percent.txt").write_text("b_1_train.png\na_0_train.png\n")
    params = PARAMS.model_copy(update={"listed_shares": [0.5]})
    ingest(tmp_path / "raw", tmp_path / "out", source="splits", params=params)
    assert (tmp_path / "out/shares/50percent.txt").read_text() == "train/b/b_1_train.png\n"


def test_main__tars_and_parquet_give_what_a_folder_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for i in range(9):
        (tmp_path / f"raw/{i % 3}").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"raw/{i % 3}/{i}.png").write_bytes(streams.png(20 * i))
    cells = [streams.png(20 * i) for i in range(9)]
    members = [[(f"{i}.png", cells[i]), (f"{i}.cls", b"%d" % (i % 3))] for i in range(9)]
    streams.tar(tmp_path / "tars/0.tar", *members[0], *members[1], *members[2], *members[3])
    streams.tar(tmp_path / "tars/1.tar", *[member for pair in members[4:] for member in pair])
    streams.parquet(tmp_path / "p.parquet", cells, [i % 3 for i in range(9)])
    pixels, rows, _, message = ingest(tmp_path / "raw", tmp_path / "a")
    columns = ["label", "class_name", "split", "width", "height", "bytes"]
    by_digest = {
        row["sha256"]: ([row[name] for name in columns], square) for row, square in zip(rows, pixels, strict=True)
    }
    for source, raw in (("tars", tmp_path / "tars"), ("parquet", tmp_path / "p.parquet")):
        pixels, rows, _, streamed = ingest(raw, tmp_path / source, source)
        assert streamed == message and message.startswith("9 images of 3 classes: 6 train")
        for row, square in zip(rows, pixels, strict=True):
            expected, expected_square = by_digest[row["sha256"]]
            assert [row[name] for name in columns] == expected and np.array_equal(square, expected_square)
    work.clear()
    assert not list((tmp_path / ".work/images").glob("*/*"))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("1.png", b"x"), ("2.png", b"")], r"no image can be used; 2 left out, the first: a\.tar/1\.png"),
        (streams.samples(0, 3, classes=1), r"all images are of the class '0'; a labelled task needs two classes"),
    ],
)
def test_main__a_stream_of_nothing_or_of_one_class_leaves_nothing(tmp_path, monkeypatch, members, message) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        ingest(streams.tar(tmp_path / "a.tar", *members), tmp_path / "out", "tars")
    assert not (tmp_path / "out").exists()


def test_main__a_tar_that_comes_while_others_are_read_stops_it(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    one, two = (lambda i=i: streams.tar(tmp_path / f"raw/{i}.tar", *streams.samples(4 * i, 4 * i + 4)) for i in (0, 1))
    monkeypatch.setattr(images, "progress", lambda steps, *_: [*steps, two()])
    with pytest.raises(ValueError, match="raw changed while it was read"):
        ingest(one().parent, tmp_path / "out", "tars")


@pytest.mark.slow
def test_main__an_object_store_as_images_and_as_tars_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, object_store
) -> None:
    monkeypatch.chdir(tmp_path)
    listing = tmp_path / "shoes.json"
    object_store.pipe({f"pictures/shoes/{i % 2}/{i}.png": streams.png(20 * i) for i in range(4)})
    listing.write_text(place.text_of(place.remote("s3://pictures/shoes")))
    pixels, rows, _, _ = ingest(listing, tmp_path / "a", "remote")
    assert [row["path"] for row in rows] == ["0/0.png", "0/2.png", "1/1.png", "1/3.png"]
    assert pixels[:, 0, 0, 0].tolist() == [0, 40, 20, 60]
    streams.tar(tmp_path / "t.tar", *streams.samples(0, 6))
    object_store.put(str(tmp_path / "t.tar"), "pictures/shoes/t.tar")
    with pytest.raises(ValueError, match=r"s3://pictures/shoes no longer agrees with .*shoes\.json"):
        ingest(listing, tmp_path / "b", "remote")
    listing.write_text(place.text_of(place.remote("s3://pictures/shoes")))
    _, rows, _, _ = ingest(listing, tmp_path / "b", "remote")
    assert [row["path"] for row in rows] == [f"t.tar/{i:05d}.png" for i in range(6)]


def test_main__coded_squares(tmp_path: Path) -> None:
    lay_splits(tmp_path / "raw", {"a": 3, "b": 2})
    params = PARAMS.model_copy(update={"stored": "webp-90", "side": 64})
    pixels, _, _, _ = ingest(tmp_path / "raw", tmp_path / "out", source="splits", params=params)
    assert pixels.shape == (10, 64, 64, 3) and abs(int(np.ptp(pixels[:, 0, 0, 0])) - 111) < 4


@pytest.mark.parametrize("stored", ["raw", "jpeg-95"])
def test_main__whole_images_of_a_folder_and_of_a_tar(tmp_path: Path, stored: str) -> None:
    sizes = {"a/1.png": (30, 30), "a/2.png": (60, 30), "b/1.png": (30, 90), "b/2.png": (400, 30)}
    for i, (path, size) in enumerate(sizes.items()):
        paint(tmp_path / "raw" / path, 20 * i, size)
    params = PARAMS.model_copy(update={"shape": "whole", "stored": stored})
    squares, rows, *_ = ingest(tmp_path / "raw", tmp_path / "out", params=params)
    assert squares.shape == (4, 16, 16, 3)
    assert [(row["width"], row["height"]) for row in rows] == list(sizes.values())
    pixels = arrays.open(tmp_path / "out/pixels.zarr")
    assert pixels.shapes.tolist() == [[16, 16], [16, 32], [48, 16], [16, 48]]
    members = [(path.replace("/", "-"), (tmp_path / "raw" / path).read_bytes()) for path in sizes]
    labels = [(name.replace(".png", ".cls"), name[:1].encode()) for name, _ in members]
    streams.tar(tmp_path / "tars/0.tar", *[member for pair in zip(members, labels, strict=True) for member in pair])
    streamed, *_ = ingest(tmp_path / "tars", tmp_path / "streamed", "tars", params)
    np.testing.assert_array_equal(streamed, squares)
    both = arrays.open(tmp_path / "streamed/pixels.zarr")
    for row in range(4):
        np.testing.assert_array_equal(both.whole(np.array([row])), pixels.whole(np.array([row])))
