import json

import pytest

from polygrain.compute import processes
from polygrain.runner import agreement


def write(folder, text="one"):
    (folder / "task").mkdir(parents=True)
    (folder / "task/table.csv").write_text(text)
    return folder


def test_content__depends_on_names_and_contents(tmp_path):
    first, second = write(tmp_path / "a"), write(tmp_path / "b")
    assert agreement.content(first) == agreement.content(second) != agreement.content(write(tmp_path / "c", "two"))
    assert agreement.content(first) == agreement.content(second)
    (second / "more").touch()
    assert agreement.content(first) != agreement.content(second)
    assert agreement.content(tmp_path / "none") != agreement.content(first)
    assert agreement.content(first / "task/table.csv") != agreement.content(second / "more")


def test_require__one_process_compares_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(agreement, "sources", lambda: pytest.fail("looked"))
    agreement.require("seeds", {}, {})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"the sources in stages/": "x"}, "the sources in stages/"),
        ({"the values of seeds, params": "x"}, "the values of seeds, params"),
        ({"the libraries": "torch 1"}, "the libraries: torch 1, there "),
    ],
)
def test_require__names_who_differs_in_what(tmp_path, monkeypatch, change, said):
    monkeypatch.setenv("WORLD_SIZE", "3")
    others = lambda data: [data, data, json.dumps(json.loads(data) | change).encode()]  # noqa: E731
    monkeypatch.setattr(processes, "gather_bytes", others)
    with pytest.raises(ValueError, match=f"^rank 2 differs from rank 0 in {said}") as error:
        agreement.require("seeds", {"params": 1}, {"images": write(tmp_path / "a")})
    assert "rank 1" not in str(error.value)


def test_require__names_the_input(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    folder = write(tmp_path / "a")

    def gather_bytes(data):
        (folder / "task/late").touch()
        facts = json.loads(data)
        key = f"the input images ({folder})"
        return [data, json.dumps(facts | {key: agreement.content(folder)}).encode()]

    monkeypatch.setattr(processes, "gather_bytes", gather_bytes)
    with pytest.raises(ValueError, match=r"rank 1 differs from rank 0 in the input images \(.*/a\)"):
        agreement.require("seeds", {}, {"images": folder})
