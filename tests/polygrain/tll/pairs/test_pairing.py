from pathlib import Path

import pytest

from polygrain.tll.pairs import pairing
from polygrain.tll.pairs.pairing import PathPair


def touch(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")
    return root


def test_find__pairs_by_name_whatever_the_order_and_extension(tmp_path):
    root = touch(tmp_path, "left/b.png", "left/a.jpg", "right/a.webp", "right/b.jpg", "left/.hidden", "left/notes.txt")
    assert pairing.find(root, None) == [
        PathPair("a", "left/a.jpg", "right/a.webp"),
        PathPair("b", "left/b.png", "right/b.jpg"),
    ]


def test_find__the_published_list_names_every_pair_twice(tmp_path):
    root = touch(tmp_path, *[f"{side}/{name}" for side in ("left", "right") for name in ("1.jpg", "2.jpg", "3.jpg")])
    (root / "TLL_obj.csv").write_text(",TLL_obj\n0,1.jpg\n1,3.jpg\n2,1.jpg\n3,3.jpg\n")
    assert [(pair.left, pair.right) for pair in pairing.find(root, "TLL_obj.csv")] == [
        ("left/1.jpg", "right/1.jpg"),
        ("left/3.jpg", "right/3.jpg"),
    ]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["left/a.jpg", "left/a.png", "right/a.jpg"], "twice .*: a"),
        (["left/a.jpg"], "no folder right/"),
        (["left/a.txt", "right/a.txt"], "no pair"),
        (["left/z.jpg", "right/z.jpg", *[f"left/{i}.jpg" for i in range(7)]], r"7 left.*0, 1, 2, 3, 4 and 2 more"),
    ],
)
def test_find__raise_on_names_that_do_not_pair(tmp_path, names, message):
    with pytest.raises(ValueError, match=message):
        pairing.find(touch(tmp_path, *names), None)


@pytest.mark.parametrize(
    ("text", "message"), [("TLL_obj\ngone.jpg\n", "left/gone.jpg, right/gone.jpg"), ("a,b\n1,2\n", "column TLL_obj")]
)
def test_find__raise_on_a_wrong_list(tmp_path, text, message):
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        pairing.find(tmp_path, "p.csv")
