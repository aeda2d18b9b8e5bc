from polygrain.store import work


def test_folder__depends_on_every_input():
    folders = {work.folder("images", *values) for values in (("a",), ("b",), ("a", "b"), ("b", "a"))}
    assert len(folders) == 4
    assert {folder.parent for folder in folders} == {work.WORK / "images"}
    assert work.folder("images", "a") == work.folder("images", "a")


def test_loaded_sources__are_this_module_and_no_runner():
    names = work.loaded_sources()
    assert "polygrain/store/work.py" in names and not any(name.startswith("polygrain/runner/") for name in names)
