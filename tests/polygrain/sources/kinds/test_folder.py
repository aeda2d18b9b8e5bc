import zipfile
from pathlib import Path

from polygrain.new.folders import examine
from tests.polygrain.new.test_folders import paint


def sample_folder(root: Path, contents: dict[str, bytes]) -> str:
    for path, content in contents.items():
        (root / "shoes" / path).parent.mkdir(parents=True, exist_ok=True)
        (root / "shoes" / path).write_bytes(content)
    return str(root / "shoes")


def sample_zip(root: Path, contents: dict[str, bytes]) -> str:
    with zipfile.ZipFile(root / "shoes.zip", "w") as target:
        for path, content in contents.items():
            target.writestr(path, content)
    return str(root / "shoes.zip")


def test_find__a_zip_holds_what_the_folder_in_it_holds(tmp_path):
    raw, path = paint(tmp_path / "raw", "a/1.png", "b/1.png", "b/2.png", "b/deep/3.png"), tmp_path / "hats.ZIP"
    (raw / "notes.txt").write_text("x")
    with zipfile.ZipFile(path, "w") as archive:
        for file in raw.rglob("*.*"):
            archive.write(file, file.relative_to(tmp_path))
    folder = examine(str(raw))
    assert folder.classes == {"a": 1, "b": 3} and folder.left_out == {".txt": 1}
    assert examine(str(path)) == folder._replace(path=path)
