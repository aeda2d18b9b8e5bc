import io
import tarfile

import pytest

from polygrain.sources.streams import tars
from polygrain.store.square import Unreadable
from tests.helpers import streams


def read(file, skip=0):
    with file.open("rb") as stream:
        tars.require_end(stream, file.name)
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
    monkeypatch.setattr(tars, "ENTRY_BYTES", 20_000)
    link, device = tarfile.TarInfo("l.png"), tarfile.TarInfo("d.png")
    link.type, link.linkname, device.type = tarfile.SYMTYPE, "/etc/passwd", tarfile.CHRTYPE
    file = streams.tar(
        tmp_path / "a.tar",
        ("../out.png", b"1"), ("/etc/out.png", b"1"), ("a\nb.png", b"1"), ("caf\udce9.png", b"1"), (link, b""),
        (device, b""), ("big.png", bytes(20_001)), ("notes.txt", b"t"), ("b.png", b"1"), ("b.cls", b"x" * 999),
        ("c.png", b"1"), ("c.json", b"[" * 9999), ("e.left.png", b"1"), ("e.right.png", b"2"), ("ok.png", b"ok"),
    )  # fmt: skip
    found = {entry.path: entry.content for entry in read(file)}
    assert found.pop("a.tar/ok.png") == b"ok" and found.pop("a.tar/e.left.png") == b"1"
    assert not [name for name, reason in found.items() if not isinstance(reason, Unreadable)]
    assert {path.removeprefix("a.tar/"): str(reason)[:22] for path, reason in found.items()} == {
        "../out.png": "its name leads outside", "/etc/out.png": "its name leads outside",
        "a\nb.png": "its name has a control",
        "caf\\xe9.png": "name is not valid UTF-", "l.png": "it is a link or a devi",
        "d.png": "it is a link or a devi", "big.png": "it has 20,001 bytes, a", "notes.txt": "not an image",
        "b.png": "its label is longer th", "c.png": "its label, a .json fil",
        "e.right.png": "the second image of th",
    }  # fmt: skip


@pytest.mark.parametrize("length", [0, 100, 512, 1024, 1500, 2048])
def test_require_end__a_tar_that_was_cut_off(tmp_path, length):
    """The first image is at 512 to 1024, the second at 1536 to 2048: whole members are there, and no end."""
    file = streams.tar(tmp_path / "a.tar", ("1.png", b"1"), ("2.png", b"2"))
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(ValueError, match=r"a\.tar is no whole tar: it has no end; make or download it again"):
        read(file)


def test_require_end__a_compressed_tar_says_so(tmp_path):
    (tmp_path / "a.tar.gz").write_bytes(b"\x1f\x8b" + b"x" * 1022)
    with pytest.raises(ValueError, match="a compressed tar is not read"):
        read(tmp_path / "a.tar.gz")


def damaged(name, offset, content):
    data = bytearray(streams.tar(name, ("1.png", b"1"), ("2.png", b"2"), ("3.png", b"3")).read_bytes())
    data[offset : offset + len(content)] = content
    name.write_bytes(data)
    return name


@pytest.mark.parametrize(
    ("offset", "content"),
    [(1024, b"\xff" * 512), (1024 + 124, b"x" * 12), (1024 + 148, b"0" * 8)],
    ids=["header", "size", "checksum"],
)
def test_read__damage_in_the_middle_is_no_end(tmp_path, offset, content):
    with pytest.raises(ValueError, match=r"a\.tar is damaged or cut off"):
        read(damaged(tmp_path / "a.tar", offset, content))


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


def test_read__a_header_that_claims_a_gigabyte_is_not_read(tmp_path):
    member = tarfile.TarInfo("name")
    member.type, member.size = tarfile.XHDTYPE, 2**30
    file = tmp_path / "a.tar"
    file.write_bytes(member.tobuf() + bytes(4096))
    with pytest.raises(ValueError, match="a header of 1,073,741,824 bytes"):
        read(file)


def test_estimate__of_many_from_the_first(monkeypatch):
    monkeypatch.setattr(tars, "SAMPLED", 5)
    with tarfile.open(fileobj=(stream := io.BytesIO()), mode="w") as archive:
        for name, content in streams.samples(0, 200):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    assert tars.estimate(stream, "a.tar", len(stream.getvalue())) == pytest.approx(200, rel=0.25)
    assert len(list(tars.read(stream, "a.tar", 0))) == 200
