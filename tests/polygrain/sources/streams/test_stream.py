from polygrain.sources.streams import stream
from polygrain.sources.streams.place import File, Location
from tests.helpers import streams


def test_entries__of_several_files_from_any_on(tmp_path):
    for number in range(3):
        streams.tar(tmp_path / f"{number}.tar", *streams.samples(4 * number, 4 * number + 4))
    images = stream.find(tmp_path, "tars", "*")
    entries = list(images.entries())
    assert [(entry.file, entry.index) for entry in entries] == [(i // 4, i % 4) for i in range(12)]
    assert list(images.entries(1, 2)) == entries[6:] and list(images.entries(1, 4)) == entries[8:]
    assert len(list(stream.find(tmp_path, "tars", "[02].tar").entries())) == 8


def test_count__rows_of_parquet_files(tmp_path):
    for number in range(2):
        streams.parquet(tmp_path / f"{number}.parquet", [b"x"] * 5)
    images = stream.find(tmp_path, "parquet", "*")
    assert images.count() == 10 and len(list(images.entries(0, 3))) == 7


def test_of_remote__tars_before_tables_before_images():
    def kind(*names):
        images = stream.of_remote(Location("s3://b/x", [File(name, 1, "") for name in names]))
        return images.kind, [file.name for file in images.place.files]

    assert kind("a.png", "b.tar", "c.parquet") == ("tars", ["b.tar"])
    assert kind("a.png", "c.parquet") == ("parquet", ["c.parquet"])
    assert kind("a/b.png", "c.txt") == ("objects", ["a/b.png", "c.txt"])
