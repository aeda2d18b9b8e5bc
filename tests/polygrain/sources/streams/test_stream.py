import pytest

from polygrain.sources.streams import stream
from polygrain.sources.streams.place import File, Location
from tests.helpers import streams


def test_entries__of_several_files_from_any_on(tmp_path):
    for number in range(3):
        streams.tar(tmp_path / f"{number}.tar", *streams.samples(4 * number, 4 * number + 4))
    images = stream.find(tmp_path, "tars", "*")
    entries = list(images.entries())
    assert [(entry.file, entry.number) for entry in entries] == [(i // 4, i % 4) for i in range(12)]
    assert list(images.entries(1, 2)) == entries[6:] and list(images.entries(1, 4)) == entries[8:]
    assert len(list(stream.find(tmp_path, "tars", "[02].tar").entries())) == 8


def test_content__of_tars_whose_labels_lie_elsewhere(tmp_path):
    members = streams.samples(0, 30)
    streams.tar(tmp_path / "few.tar", *members[1:], members[0])
    content = stream.find(tmp_path / "few.tar", "tars", "*").content()
    assert sum(content.classes.values()) == 29 and content.left_out.total() == 2
    streams.tar(tmp_path / "many.tar", *members[::2], *members[1::2])
    with pytest.raises(ValueError, match=r"many\.tar: 30 labels do not lie beside their images .* --sort=name"):
        stream.find(tmp_path / "many.tar", "tars", "*").content()


def test_content__of_tars_without_labels_says_so(tmp_path):
    streams.tar(tmp_path / "a.tar", ("boots/1.png", streams.png(1)), ("heels/2.png", streams.png(2)))
    content = stream.find(tmp_path / "a.tar", "tars", "*").content()
    assert content.classes == {"": 2} and "no label" in content.labels


def test_find__what_lies_beside_tars_is_left_out(tmp_path):
    for name in ("in/0.tar", "in/._0.tar", "in/1.TAR"):
        streams.tar(tmp_path / name, *streams.samples(0, 4))
    (tmp_path / "in/labels.csv").write_text("x")
    images = stream.find(tmp_path / "in", "tars", "*")
    assert [file.name for file in images.place.files] == ["0.tar", "1.TAR"]
    assert images.others == {"labels.csv": "beside the tars", "._0.tar": "hidden"}
    assert images.content().left_out == {"beside the tars": 1, "hidden": 1}


def test_of_remote__tars_before_tables_before_images():
    def kind(*names):
        images = stream.of_remote(Location("s3://b/x", [File(name, 1, "") for name in names]))
        return images.kind, [file.name for file in images.place.files]

    assert kind("a.png", "b.tar", "c.parquet") == ("tars", ["b.tar"])
    assert kind("a.png", "c.parquet") == ("parquet", ["c.parquet"])
    assert kind("a/b.png", "c.txt") == ("objects", ["a/b.png", "c.txt"])
