import os

import pytest

from polygrain.store.untrusted import read_text, require_plain


def test_read_text__is_the_text(tmp_path):
    (tmp_path / "a.txt").write_text("é\n", encoding="utf-8")
    (tmp_path / "link").symlink_to("a.txt")
    assert read_text(tmp_path / "a.txt") == read_text(tmp_path / "link") == "é\n"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (os.mkfifo, "it is a pipe"),
        (os.mkdir, "it is a folder"),
        (lambda file: file.symlink_to("/dev/zero"), "it is a device"),
        (lambda file: file.write_bytes(b"x" * 101), "more than the 100 bytes"),
        (lambda file: file.write_bytes("é".encode("latin-1")), "not UTF-8 text .* at byte 0"),
        (lambda file: file.write_bytes("a".encode("utf-16")), "not UTF-8 text"),
        (lambda file: file.write_bytes(b"\xef\xbb\xbfa"), "byte order mark"),
        (lambda file: file.write_bytes(b"a\0"), "NUL"),
    ],
)
def test_read_text__says_what_it_is_instead(tmp_path, make, reason):
    make(tmp_path / "a")
    with pytest.raises(ValueError, match=reason):
        read_text(tmp_path / "a", 100)


def test_require_plain__follows_links_into_the_cache_of_dvc_only(tmp_path):
    for name in ("cache/files/md5/ab/" + "c" * 30, "elsewhere"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
        (tmp_path / f"to-{file.name}").symlink_to(file)
    require_plain(tmp_path / ("to-" + "c" * 30))
    with pytest.raises(ValueError, match="it is a link"):
        require_plain(tmp_path / "to-elsewhere")
