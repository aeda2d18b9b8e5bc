import tarfile

import pytest

from polygrain.sources.streams import tars
from polygrain.store.rectangle import Unreadable
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
    entries = read(file)
    assert [tuple(entry) for entry in entries if isinstance(entry.content, bytes)] == [
        (4, 0, "a.tar/x/1.jpg", "3", b"one"),
        (4, 1, "a.tar/x/2.PNG", "5", b"two"),
        (4, 3, "a.tar/x/3.png", "", b"three"),
    ]
    rejected = {entry.path: str(entry.content) for entry in entries if isinstance(entry.content, Unreadable)}
    assert rejected == {"a.tar/x/2.txt": "not an image"}
    assert list(map(str, read(file, 2))) == list(map(str, entries[2:]))


@pytest.mark.parametrize(("kind", "root"), [(tarfile.LNKTYPE, "."), (tarfile.SYMTYPE, "../.")])
def test_read__links_are_the_earlier_member_and_marks_of_order_no_letters(tmp_path, kind, root):
    links = [tarfile.TarInfo(name) for name in ("./x/2.cls", "./x/3.cls", "./x/3.png", "./x/4.png")]
    for link, name in zip(links, ("x/1.cls", "x/2.cls", "x/1.png", "../x/1.png"), strict=True):
        link.type, link.linkname = kind, f"{root}/{name}"
    one, two, three, four = ((link, b"") for link in links)
    first = [("./x/1.png", b"one"), ("./x/1.cls", b"\xef\xbb\xbfboots"), ("./x/2.png", b"two")]
    more = [("x/5.png", b"five"), ("x/5.json", b'\xef\xbb\xbf{"label": "boots"}')]
    entries = read(streams.tar(tmp_path / "a.tar", *first, one, two, three, four, *more))
    assert [(entry.class_name, entry.content) for entry in entries if entry.class_name] == [
        ("boots", content) for content in (b"one", b"two", b"one", b"five")
    ]
    assert [str(entry.content) for entry in entries if not entry.class_name] == ["it is a link or a device"]


def test_read__files_of_macos_part_no_image_from_its_label(tmp_path):
    members = [(f"./{hidden}{i}.{kind}", b"5") for i in range(2) for kind in ("jpg", "cls") for hidden in ("._", "")]
    entries = read(streams.tar(tmp_path / "a.tar", *members))
    assert [(entry.class_name, entry.content) for entry in entries] == [("5", b"5"), ("5", b"5")]


def test_read__a_label_without_an_image_is_an_entry(tmp_path):
    entries = read(streams.tar(tmp_path / "a.tar", ("1.jpg", b"1"), ("2.jpg", b"2"), ("1.cls", b"5"), ("2.cls", b"6")))
    assert [str(entry.content) for entry in entries[2:]] == [tars.ORPHAN] * 2


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
    contents = {entry.path: entry.content for entry in read(file)}
    assert contents.pop("a.tar/ok.png") == b"ok" and contents.pop("a.tar/e.left.png") == b"1"
    assert not [name for name, reason in contents.items() if not isinstance(reason, Unreadable)]
    assert {path.removeprefix("a.tar/"): str(reason)[:22] for path, reason in contents.items()} == {
        "../out.png": "its name leads out of ", "/etc/out.png": "its name leads out of ",
        "caf\\xe9.png": "name is not valid UTF-", "l.png": "it is a link or a devi",
        "d.png": "it is a link or a devi", "big.png": "it has 20,001 bytes, a", "notes.txt": "not an image",
        "b.png": "its label is longer th", "c.png": "its label, a .json fil",
        "e.right.png": "the second image of th",
    }  # fmt: skip


def whole(folder, count=3):
    return streams.tar(folder / "a.tar", *((f"{i}.png", b"%d" % i) for i in range(count)))


def size_of(content, size):
    """The first member's size in base 256, as large files have it."""
    head = bytearray(content[:512])
    head[124:136] = tarfile.itn(size, 12, tarfile.GNU_FORMAT)
    head[148:156] = b"%06o\0 " % tarfile.calc_chksums(bytes(head))[0]
    return bytes(head) + content[512:]


@pytest.mark.parametrize(
    ("change", "last"),
    [
        # Image i is at 1024 i + 512 to 1024 i + 1024, the end at 3072.
        *((lambda c, n=n: c[:n], "") for n in (0, 100, 512, 1500)),
        (lambda c: c[:2048], r"'1\.png'"),
        (lambda c: c[:3072], r"'2\.png'"),
        *((lambda c, n=n: c[:2048] + bytes(n) + c[2048:], r"'1\.png'") for n in (512, 8192)),
        (lambda c: c + c, r"'2\.png'"),
        (lambda c: c[:1024] + b"\xff" * 512 + c[1536:], r"'0\.png'"),
        (lambda c: c[:1148] + b"x" * 12 + c[1160:], r"'0\.png'"),
        (lambda c: c[:1172] + b"0" * 8 + c[1180:], r"'0\.png'"),
        (lambda c: size_of(c, 2**40), ""),
        (lambda c: size_of(c, -(2**40)), ""),  # which would lead back, round and round
        (lambda c: b"\x1f\x8b" + c[2:], ".*a compressed tar is not read"),
    ],
)
def test_read__a_damaged_tar_loses_nothing_silently(tmp_path, change, last):
    file = whole(tmp_path)
    content = file.read_bytes()
    file.write_bytes(content + bytes(100_000))
    assert len(read(file)) == 3
    file.write_bytes(change(content))
    with pytest.raises(ValueError, match=rf"a\.tar is damaged or cut off after {last}"):
        read(file)
