from types import SimpleNamespace

import pytest

from polygrain.sources.streams import objects, place, stream
from polygrain.sources.streams.place import File, Location


class Store(dict):
    """An object store as `read` sees it: {address: bytes}."""

    def cat_file(self, path):
        return self[path]


def placed(monkeypatch, **contents):
    contents = {name.replace("__", "/").replace("_", "."): content for name, content in contents.items()}
    monkeypatch.setattr(objects, "FETCHED", 2)
    store = Store({f"s3://b/x/{name}": content for name, content in contents.items()})
    return Location("s3://b/x", [File(name, len(content), "") for name, content in sorted(contents.items())], store)


def test_read__classes_by_folder_as_on_the_disk(monkeypatch):
    location = placed(
        monkeypatch, c__1_png=b"1", a__2_jpg=b"2", a__b__3_png=b"3", beside_png=b"4", c__n_txt=b"5", **{"_hid_png": b""}
    )
    entries = list(objects.read(location))
    assert [(entry.path, entry.class_name, entry.content) for entry in entries if isinstance(entry.content, bytes)] == [
        ("a/2.jpg", "a", b"2"), ("a/b/3.png", "a", b"3"), ("c/1.png", "c", b"1")
    ]  # fmt: skip
    assert {entry.path: str(entry.content) for entry in entries if not isinstance(entry.content, bytes)} == {
        ".hid.png": "hidden",
        "beside.png": "image beside the class folders",
        "c/n.txt": "not an image",
    }
    for number, entry in enumerate(entries):
        assert list(map(str, objects.read(location, entry.file))) == list(map(str, entries[number:]))


def test_find__an_object_too_large_is_not_fetched():
    files = [File("a.png", objects.MOST_BYTES + 1, ""), File("b.png", 1, "")]
    location = Location("s3://b/x", files, SimpleNamespace(cat_file=lambda path: b"1"))
    assert "at most" in objects.find(location)[0].refused
    assert "at most" in str(next(objects.read(location)).content)


@pytest.mark.slow
def test_read__brackets_in_names_are_no_pattern(object_store):
    names = ["shoes [2023]/photo [1].png", "shoes [2023]/*.png", "boots/?.png"]
    for name in names:
        object_store.pipe_file(f"pictures/br[1]/{name}", name.encode())
    images = stream.of_remote(place.remote("s3://pictures/br[1]"))
    assert {entry.path: entry.content for entry in images.entries()} == {name: name.encode() for name in names}
    assert images.content() == ({"boots": 1, "shoes [2023]": 2}, {}, "")
