import os
import unicodedata
from pathlib import Path

import pytest

from polygrain.collection.listing import find


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")


def test_find__every_depth_and_no_layout(tmp_path: Path) -> None:
    touch(tmp_path, "b/c/2.PNG", "a.jpg", "b/1.webp", ".hidden/3.png", "b/notes.txt")
    found = find(tmp_path)
    assert found.paths == ["a.jpg", "b/1.webp", "b/c/2.PNG"]
    assert found.rejected == {"b/notes.txt": "not an image", ".hidden/": "hidden"}
    assert found.root == tmp_path.resolve()


def test_find__links_stay_inside_and_end(tmp_path: Path) -> None:
    root = tmp_path / "root"
    touch(tmp_path, "root/a/1.png", "secret.png")
    (root / "a/up").symlink_to(root)
    (root / "a/out.png").symlink_to(tmp_path / "secret.png")
    (root / "a/same.png").symlink_to(root / "a/1.png")
    found = find(root)
    assert found.paths == ["a/1.png", "a/same.png"]
    assert found.rejected == {
        "a/up/": "folder that is read under another name",
        "a/out.png": "link leads outside the folder",
    }


def test_find__csv(tmp_path: Path) -> None:
    touch(tmp_path, "in/b.png", "in/a.png", "c.png")
    rows = ["b.png", "./a.png", "../c.png", "b.png", "gone.png", str(tmp_path / "in/a.png"), "", "a\0.png"]
    (tmp_path / "in/list.csv").write_text("label,path\n" + "".join(f"x,{row}\n" for row in rows))
    found = find(tmp_path / "in/list.csv")
    assert found.paths == ["b.png", "a.png"]
    assert found.rejected == {
        "../c.png": "leads outside the folder",
        "b.png": "named twice",
        "gone.png": "no such file",
        str(tmp_path / "in/a.png"): "named twice",
        "": "no such file",
        "a\0.png": "not a name of a file",
    }


def test_find__csv_beside_any_text(tmp_path: Path) -> None:
    touch(tmp_path, "1.png", "2.png", unicodedata.normalize("NFD", "Möbel/é.png"))
    (tmp_path / "list.csv").write_bytes(
        "path,caption\n1.png,{}\n2.png,caf\xe9\nM\xf6bel/\xe9.png,x\n".format("x" * 140_000).encode("latin-1")
    )
    found = find(tmp_path / "list.csv")
    assert found.paths == ["1.png", "2.png"] and found.rejected == {"M\\xf6bel/\\xe9.png": "name is not valid UTF-8"}
    (tmp_path / "list.csv").write_text("path\n" + unicodedata.normalize("NFC", "Möbel/é.png"))
    assert find(tmp_path / "list.csv").paths == [unicodedata.normalize("NFD", "Möbel/é.png")]
    (tmp_path / "list.csv").write_text('path,caption\n1.png,x\n2.png,"24" screen"\n')
    with pytest.raises(ValueError, match="line 3"):
        find(tmp_path / "list.csv")


@pytest.mark.parametrize(
    ("name", "message"),
    [("empty", "no image"), ("none", "does not exist"), ("a.txt", "neither a folder"), ("a.csv", "columns are file")],
)
def test_find__raises_where_there_is_no_list_of_images(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    for file in ("a.csv", "a.txt"):
        (tmp_path / file).write_text("file\nb.png\n")
    with pytest.raises(ValueError, match=message):
        find(tmp_path / name)


def test_states__two_files_that_swap_names_where_a_disk_keeps_no_time_of_that(tmp_path: Path, monkeypatch) -> None:
    touch(tmp_path, "a.png", "b.png")
    stat = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **how: os.stat_result((*stat(path, **how)[:7], 0, 0, 0)))
    before = find(tmp_path).states()
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        (tmp_path / f"{old}.png").rename(tmp_path / f"{new}.png")
    assert find(tmp_path).states() == before[::-1] and before[0] != before[1]
