import tarfile

import numpy as np
import pytest

from polygrain.sources.streams import tars
from polygrain.store.square import Unreadable
from tests.helpers import streams


def read(file, skip=0):
    with file.open("rb") as stream:
        return list(tars.read(stream, file.name, 4, skip))


def test_read__images_with_their_labels_of_either_kind(tmp_path):
    file = streams.tar(
        tmp_path / "a.tar",
        ("x/1.jpg", b"one"), ("x/1.json", b'{"label": 3, "caption": "c"}'), ("x/2.cls", b"5\n"), ("x/2.txt", b"t"),
        ("x/2.PNG", b"two"), ("x/3.png", b"three"), ("x/.3.png", b"hidden"),
    )  # fmt: skip
    assert [tuple(entry) for entry in read(file)] == [
        (4, 0, "a.tar/x/1.jpg", "3", b"one"),
        (4, 1, "a.tar/x/2.PNG", "5", b"two"),
        (4, 2, "a.tar/x/3.png", "", b"three"),
    ]
    assert read(file, 2) == read(file)[2:]


def test_read__hostile_members_are_left_out_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(tars, "MOST_BYTES", 20_000)
    link, device = tarfile.TarInfo("l.png"), tarfile.TarInfo("d.png")
    link.type, link.linkname, device.type = tarfile.SYMTYPE, "/etc/passwd", tarfile.CHRTYPE
    file = streams.tar(
        tmp_path / "a.tar",
        ("../out.png", b"1"), ("/etc/out.png", b"1"), ("caf\udce9.png", b"1"), (link, b""),
        (device, b""), ("big.png", bytes(20_001)), ("notes.txt", b"t"), ("b.png", b"1"), ("b.cls", b"x" * 999),
        ("c.png", b"1"), ("c.json", b"[" * 9999), ("e.left.png", b"1"), ("e.right.png", b"2"), ("ok.png", b"ok"),
    )  # fmt: skip
    found = {entry.path: entry.content for entry in read(file)}
    assert found.pop("a.tar/ok.png") == b"ok" and found.pop("a.tar/e.left.png") == b"1"
    assert not [name for name, reason in found.items() if not isinstance(reason, Unreadable)]
    assert {path.removeprefix("a.tar/"): str(reason)[:22] for path, reason in found.items()} == {
        "../out.png": "its name leads out of ", "/etc/out.png": "its name leads out of ",
        "caf\\xe9.png": "name is not valid UTF-", "l.png": "it is a link or a devi",
        "d.png": "it is a link or a devi", "big.png": "it has 20,001 bytes, a", "notes.txt": "not an image",
        "b.png": "its label is longer th", "c.png": "its label, a .json fil",
        "e.right.png": "the second image of th",
    }  # fmt: skip


def whole(folder, count=3, name="a.tar"):
    return streams.tar(folder / name, *((f"{i}.png", b"%d" % i) for i in range(count)))


@pytest.mark.parametrize("length", [0, 100, 512, 1000, 1024, 1500, 2048, 3072])
def test_read__a_tar_that_was_cut_off(tmp_path, length):
    """Image i is at 1024 i + 512 to 1024 i + 1024: whole members are there, and no end."""
    file = whole(tmp_path)
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(ValueError, match=r"a\.tar is damaged or cut off after"):
        read(file)


@pytest.mark.parametrize("zeros", [512, 1024, 8192])
def test_read__zeros_between_members_are_no_end(tmp_path, zeros):
    file = whole(tmp_path)
    content = file.read_bytes()
    file.write_bytes(content[:2048] + bytes(zeros) + content[2048:])
    with pytest.raises(ValueError, match=r"a\.tar is damaged or cut off after '1\.png'"):
        read(file)


def test_read__two_tars_in_one_file(tmp_path):
    first, second = whole(tmp_path), whole(tmp_path, name="b.tar")
    first.write_bytes(first.read_bytes() + second.read_bytes())
    with pytest.raises(ValueError, match=r"a\.tar is damaged or cut off after '2\.png'"):
        read(first)


def test_read__more_zeros_at_the_end(tmp_path):
    file = whole(tmp_path)
    file.write_bytes(file.read_bytes() + bytes(100_000))
    assert len(read(file)) == 3


def test_read__random_damage_loses_no_entry_silently(tmp_path):
    """A damaged block leaves all members there, or ends in an error."""
    file = whole(tmp_path, 20)
    content, rng = file.read_bytes(), np.random.default_rng(0)
    outcomes = set()
    for _ in range(200):
        damaged = bytearray(content)
        start = int(rng.integers(0, 20 * 1024))
        damaged[start : start + 8] = rng.bytes(8) if rng.random() < 0.5 else bytes(8)
        file.write_bytes(damaged)
        try:
            outcomes.add(len(read(file)))
        except ValueError as error:
            assert "a.tar is damaged or cut off after" in str(error)
            outcomes.add("error")
    assert outcomes == {20, "error"}


def test_read__a_compressed_tar_says_so(tmp_path):
    (tmp_path / "a.tar.gz").write_bytes(b"\x1f\x8b" + b"x" * 1022)
    with pytest.raises(ValueError, match="a compressed tar is not read"):
        read(tmp_path / "a.tar.gz")


@pytest.mark.parametrize(
    ("offset", "content"),
    [(1024, b"\xff" * 512), (1024 + 124, b"x" * 12), (1024 + 148, b"0" * 8), (1024, bytes(512))],
    ids=["header", "size", "checksum", "zeros"],
)
def test_read__a_damaged_header_names_the_entry_before(tmp_path, offset, content):
    file = whole(tmp_path)
    damaged = bytearray(file.read_bytes())
    damaged[offset : offset + len(content)] = content
    file.write_bytes(damaged)
    with pytest.raises(ValueError, match=r"a\.tar is damaged or cut off after '0\.png'"):
        read(file)


@pytest.mark.parametrize("size", [-(2**40), 2**40])
def test_read__a_member_that_ends_outside(tmp_path, size):
    """The size in base 256, as large files have it; a negative one would lead back, round and round."""
    member = tarfile.TarInfo("1.png")
    head = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    head[124:136] = tarfile.itn(size, 12, tarfile.GNU_FORMAT)
    head[148:156] = b"%06o\0 " % tarfile.calc_chksums(bytes(head))[0]
    (tmp_path / "a.tar").write_bytes(bytes(head) + bytes(2048))
    with pytest.raises(ValueError, match=r"a\.tar is damaged or cut off"):
        read(tmp_path / "a.tar")
