import stat
import struct
import zipfile

import pytest

from polygrain.sources import archive


def packed(path, *entries, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as target:
        for name, content in entries:
            target.writestr(name, content)
    return path


class Raw(zipfile.ZipInfo):
    """An entry whose name is bytes of a machine's own alphabet, without the flag of UTF-8."""

    def _encodeFilenameFlags(self):
        return self.filename.encode("cp437"), self.flag_bits & ~archive.IN_UTF8


def raw(name):
    entry = Raw("x")
    entry.filename = name.decode("cp437")
    return entry


@pytest.mark.parametrize("slash", ["/", "\\"])
@pytest.mark.parametrize(
    ("alphabet", "classes"),
    [
        ("cp932", ["ソファ", "Nikeシューズ", "表"]),
        ("cp932", ["ｿﾌｧ", "表"]),
        ("cp949", ["신발", "가방"]),
        ("gbk", ["靴子", "椅子"]),
        ("big5", ["成功", "桌子"]),
        ("cp866", ["Обувь", "Сапоги"]),
        ("cp437", ["Möbel", "Türen", "Größe", "boots"]),
        ("utf-8", ["Möbel", "机"]),
    ],
)
def test_find__names_of_old_tools(tmp_path, alphabet, classes, slash):
    names = [f"{name}{slash}{i}.jpg" for name in classes for i in range(2)]
    file = packed(tmp_path / "a.zip", *((raw(name.encode(alphabet)), name.encode()) for name in names))
    images, rejected = archive.find(file)
    assert set(images.values()) == set(classes) and len(images) == len(names) and not rejected
    with archive.opened(file, tmp_path / "new") as folder:
        contents = {path: (folder / path).read_text().replace("\\", "/") for path in images}
        assert all(path == content for path, content in contents.items())


@pytest.mark.parametrize(
    ("name", "field", "value", "reason"),
    [
        ("a.png", 10, 9, "packed by Deflate64"),
        ("a.png", 10, 6, "packed by method 6"),
        ("a.png", 8, 1, "it is encrypted"),
        ("写" * 90 + ".jpg", 12, 0, "its name has 274 bytes, more than Linux takes: shorten it"),
    ],
)
def test_find__says_what_cannot_be_unpacked(tmp_path, name, field, value, reason):
    file = packed(tmp_path / "a.zip", (name, b"a"))
    content = bytearray(file.read_bytes())
    content[content.index(b"PK\x01\x02") + field] = value
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"{reason}; .*unpack it with 7z and give the folder"):
        archive.find(file)


def link(name):
    entry = zipfile.ZipInfo(name)
    entry.create_system, entry.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return entry


def test_opened__a_folder_is_itself_and_a_zip_one_while_it_is_read(tmp_path):
    with archive.opened(tmp_path, tmp_path / "new") as folder:
        assert folder == tmp_path
    file = packed(tmp_path / "a.zip", ("x/1.png", b"one"), ("y/2.png", b"two"))
    with archive.opened(file, tmp_path / "new") as folder:
        content = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.png")}
        assert content == {"x/1.png": b"one", "y/2.png": b"two"}
    assert not folder.exists() and tmp_path.exists()
    with pytest.raises(ValueError, match=r"^\S*/a.zip/x is empty$"), archive.opened(file, tmp_path / "new") as folder:
        raise ValueError(f"{folder}/x is empty")


@pytest.mark.parametrize(
    ("names", "classes"),
    [
        (["a/12:30:05.jpg", "b/C:1.jpg"], ["a", "b"]),
        (["a\\1.jpg", "b\\2.jpg"], ["a", "b"]),
        (["train/1.jpg", "val/#recycle/2.jpg", "val/2.jpg"], ["", ""]),
        (["shoes/a/1.jpg", "shoes/b/2.jpg", "shoes/readme.txt"], ["a", "b"]),
        (["shoes/1.jpg", "shoes/2.jpg", "__MACOSX/shoes/._1.jpg", "shoes/.DS_Store"], ["", ""]),
        (["1.jpg", "2.jpg", "__MACOSX/._1.jpg", "Thumbs.db"], ["", ""]),
    ],
)
def test_find__lists_what_the_unpacked_folder_holds(tmp_path, names, classes):
    file = packed(tmp_path / "a.ZIP", *((name, name.encode()) for name in names))
    images, rejected = archive.find(file)
    assert list(images.values()) == classes and len(images) + len(rejected) == len(names)
    with archive.opened(file, tmp_path / "new") as folder:
        assert all((folder / path).read_bytes() for path in images)
        assert not list(folder.rglob("__MACOSX"))


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("../out.png", "leads out"),
        ("/etc/out.png", "leads out"),
        ("a/../../out.png", "leads out"),
        ("..\\out.png", "leads out"),
        (link("a.png"), "a link or a device"),
        ("ok.png", "twice"),
        ("bomb.png", "would grow from"),
    ],
)
def test_opened__hostile_entries_stop_it_before_anything_is_written(tmp_path, entry, reason, monkeypatch):
    monkeypatch.setattr(archive, "MOST_BYTES", 2**20)
    (tmp_path / "in").mkdir()
    content = bytes(2**20 + 1) if entry == "bomb.png" else b"/etc"
    file = packed(tmp_path / "in" / "a.zip", ("ok.png", b"1"), (entry, content))
    with pytest.raises(ValueError, match=reason), archive.opened(file, tmp_path / "new"):
        raise AssertionError("it was opened")
    assert [path.name for path in tmp_path.rglob("*")] == ["in", "a.zip"]


def declared_shorter(content):
    directory = content.index(b"PK\x01\x02")
    content[directory + 24 : directory + 28] = struct.pack("<I", 4)  # the size in the central directory


def damaged(content):
    content[40:60] = b"\xff" * 20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content.clear(), "is no zip, and no folder"),
        (declared_shorter, "cannot be unpacked"),
        (damaged, r"a.zip cannot be unpacked"),
    ],
)
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_LZMA])
def test_opened__damage_names_the_archive(tmp_path, change, message, method):
    file = packed(tmp_path / "a.zip", ("a.png", bytes(range(256)) * 40), method=method)
    content = bytearray(file.read_bytes())
    change(content)
    file.write_bytes(content)
    with pytest.raises(ValueError, match=message), archive.opened(file, tmp_path / "new"):
        raise AssertionError("it was opened")
