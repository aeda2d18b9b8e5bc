import stat
import struct
import zipfile

import pytest

from polygrain.sources import archive


def packed(path, *entries):
    with zipfile.ZipFile(path, "w") as target:
        for name, content in entries:
            target.writestr(name, content)
    return path


def link(name):
    entry = zipfile.ZipInfo(name)
    entry.create_system, entry.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return entry


def test_opened__a_folder_is_itself(tmp_path):
    with archive.opened(tmp_path) as folder:
        assert folder == tmp_path
    assert tmp_path.exists()


def test_opened__a_zip_is_a_folder_for_as_long_as_it_is_read(tmp_path):
    with archive.opened(packed(tmp_path / "a.zip", ("x/1.png", b"one"), ("y/2.png", b"two"))) as folder:
        found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.png")}
        assert found == {"x/1.png": b"one", "y/2.png": b"two"}
    assert not folder.exists()


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("../out.png", "leads out"),
        ("/etc/out.png", "leads out"),
        ("a/../../out.png", "leads out"),
        ("..\\out.png", "leads out"),
        ("C:/out.png", "leads out"),
        (link("a.png"), "a link or a device"),
    ],
)
def test_opened__hostile_entries_stop_it_before_anything_is_written(tmp_path, entry, reason):
    (tmp_path / "in").mkdir()
    file = packed(tmp_path / "in" / "a.zip", ("ok.png", b"1"), (entry, b"/etc"))
    with pytest.raises(ValueError, match=reason), archive.opened(file):
        raise AssertionError("it was opened")
    assert [path.name for path in tmp_path.rglob("*")] == ["in", "a.zip"]


def test_opened__a_bomb_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as target:
        target.writestr("a.png", bytes(10 * 2**20))
    with pytest.raises(ValueError, match="would grow from"), archive.opened(tmp_path / "a.zip"):
        pass


def test_opened__an_entry_longer_than_it_declares_is_refused(tmp_path):
    file = packed(tmp_path / "a.zip", ("a.png", b"0123456789"))
    content = bytearray(file.read_bytes())
    directory = content.index(b"PK\x01\x02")
    content[directory + 24 : directory + 28] = struct.pack("<I", 4)  # the size in the central directory
    file.write_bytes(bytes(content))
    with pytest.raises(ValueError, match="cannot be unpacked"), archive.opened(file):
        pass


def test_opened__the_same_name_twice_is_refused(tmp_path):
    with pytest.warns(UserWarning, match="Duplicate name"):
        file = packed(tmp_path / "a.zip", ("a.png", b"1"), ("a.png", b"2"))
    with pytest.raises(ValueError, match="twice"), archive.opened(file):
        pass


@pytest.mark.parametrize("content", [b"no zip at all", b"PK\x05\x06"])
def test_opened__another_file_is_refused(tmp_path, content):
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(ValueError, match="neither a folder nor a zip"), archive.opened(tmp_path / "a.zip"):
        pass


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_opened__a_damaged_entry_names_the_archive(tmp_path, method):
    file = tmp_path / "a.zip"
    with zipfile.ZipFile(file, "w", method) as target:
        target.writestr("a.png", bytes(range(256)) * 40)
    content = bytearray(file.read_bytes())
    content[40:60] = b"\xff" * 20
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"a.zip cannot be unpacked"), archive.opened(file):
        raise AssertionError("it was opened")


def test_opened__what_is_wrong_with_the_content_names_the_archive(tmp_path):
    with (
        pytest.raises(ValueError, match=r"^\S*/a.zip/x is empty$"),
        archive.opened(packed(tmp_path / "a.zip", ("x/1.png", b"one"))) as folder,
    ):
        raise ValueError(f"{folder}/x is empty")
