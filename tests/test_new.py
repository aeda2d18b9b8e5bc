import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from PIL import Image
from ruamel.yaml import YAML

from pipeline import new
from stages.core.sources import decode, folder

PARAMS = """\
# Paths are seen from this file.
root: .      # where stages/ lies
seed: 0

tasks:       # one retrieval task each
  digits: {source: digits, path: requirements.lock}
  glyphs: {source: glyphs, path: requirements.lock}

granularities: &granularities    # add a line to add one
  k16: adaptor/k16
  k64: adaptor/k64  # the finest
fusions: {average: adaptor}
gsp:         # a branch
  digits: images/digits  # on these tasks
gsp_runs: {}
models:
  pixels: images
  <<: *granularities
  average: fusion/average
tll:         # one study each
  analogies: {source: analogies, path: requirements.lock}
images:
  size: 48   # px
encoder:
  path: encoders/small
other:
  path: not/here
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root/encoders/small").mkdir(parents=True)
    (tmp_path / "root/params.yaml").write_text(PARAMS)
    (tmp_path / "root/dvc.yaml").write_text("stages: {}\n")
    return tmp_path / "root"


def paint(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(folder / name)
    return folder


def read(file: Path) -> dict:
    return YAML(typ="safe").load(file.read_text())


def test_constants__are_those_of_the_stage() -> None:
    assert new.SUFFIXES == folder.SUFFIXES
    assert new.FORMATS == decode.FORMATS


def test_create__labelled_and_flat(root: Path, tmp_path: Path) -> None:
    classes = paint(tmp_path / "My Cars", *[f"{name}/{i}.png" for name in "abc" for i in range(40)])
    (classes / "a/broken.jpg").write_text("x")
    (classes / "a/notes.txt").write_text("x")
    (classes / "a/.hidden").write_text("x")
    flat = paint(tmp_path / "flat", *[f"{i}.png" for i in range(9)])
    lines = new.create(root, "mine", [classes, flat])
    assert lines == [
        "my-cars: 120 images (3 classes), 80 of them to train on; left out: 1 unreadable, 1 other entries",
        "flat: 9 images (unlabelled, so not evaluated), 9 of them to train on; left out: 0 unreadable, 0 other entries",
        "granularities: k = 8, 32, for 89 training images",
        "wrote profiles/mine; next: .venv/bin/dvc repro profiles/mine/dvc.yaml",
    ]
    values = read(root / "profiles/mine/params.yaml")
    fitted = {f"k{k}": f"adaptor/k{k}" for k in (8, 32)}
    others = {name: path for name, path in read(root / "params.yaml")["models"].items() if not name.startswith("k")}
    assert values == read(root / "params.yaml") | {
        "root": "../..",
        "tll": {},
        "granularities": fitted,
        "gsp": {},
        "models": fitted | others,
        "tasks": {
            "my-cars": {"source": "folder", "path": str(classes)},
            "flat": {"source": "folder", "path": str(flat)},
        },
        "encoder": {"path": "../../encoders/small"},
    }
    assert os.readlink(root / "profiles/mine/dvc.yaml") == "../../dvc.yaml"
    assert (root / "profiles/mine/dvc.yaml").read_text() == "stages: {}\n"


def test_create__keeps_comments_and_the_anchor(root: Path, tmp_path: Path) -> None:
    new.create(root, "mine", [paint(tmp_path / "flat", *[f"{i}.png" for i in range(20)])])
    text = (root / "profiles/mine/params.yaml").read_text()
    for kept in ("# Paths are seen", "# where stages/ lies", "# one retrieval task", "# add a line", "48   # px"):
        assert kept in text
    assert (
        "granularities: &granularities    # add a line to add one\n  k2: adaptor/k2\n  k8: adaptor/k8\nfusions" in text
    )
    assert "  <<: *granularities\n" in text


def test_create__fits_granularities_to_the_images(root: Path, tmp_path: Path) -> None:
    lines = new.create(root, "few", [paint(tmp_path / "flat", *[f"{i}.png" for i in range(63)])])
    assert "granularities: k = 4, 16, for 63 training images" in lines[1]
    assert set(read(root / "profiles/few/params.yaml")["models"]) == {"pixels", "k4", "k16", "average"}
    new.create(root, "more", [paint(tmp_path / "flat", *[f"{i}.png" for i in range(63, 130)])])
    assert list(read(root / "profiles/more/params.yaml")["granularities"]) == ["k16", "k64"]


def test_create__of_the_real_params_suits_photographs(root: Path, tmp_path: Path) -> None:
    (root / "params.yaml").write_text((Path(new.ROOT) / "params.yaml").read_text())
    new.create(root, "mine", [paint(tmp_path / "flat", *[f"{i}.png" for i in range(40)])])
    values = read(root / "profiles/mine/params.yaml")
    assert values["seeds"]["largest"] == 16 == max(int(k[1:]) for k in values["granularities"])
    assert values["adaptor"]["augmentation"]["flip"] == values["fusion"]["neighbour"]["augmentation"]["flip"] == 0.5
    assert values["adaptor"]["augmentation"]["smallest_crop"] == 0.2
    assert (
        values["adaptor"]["augmentation"]["stroke"] == values["fusion"]["augmentation"]["augmentation"]["stroke"] == 0
    )
    colours = {"turn": 15, "jitter": 0.1, "tint": 0, "grey": 0, "blur": 0.3}
    assert {name: values["adaptor"]["augmentation"][name] for name in colours} == colours
    expected = {key: YAML(typ="safe").load(value) for key, value in new.ADAPTOR.items()}
    assert {key: values["adaptor"][key] for key in new.ADAPTOR} == expected
    assert values["fusion"]["neighbour"]["epochs"] == read(root / "params.yaml")["fusion"]["neighbour"]["epochs"]
    assert {branch: values[branch] for branch in new.BRANCHES} == {branch: {} for branch in new.BRANCHES}


@pytest.mark.parametrize("train_images", [4, 5, 7, 8, 20, 63, 1000])
@pytest.mark.parametrize("rungs", [1, 3, 6])
def test_ladder__fits(train_images: int, rungs: int) -> None:
    ks = new.ladder(train_images, rungs)
    assert 1 <= len(ks) <= rungs
    assert train_images / 4 < ks[-1] <= train_images / 2
    assert ks[0] >= 2
    assert all(4 * small == large for small, large in pairwise(ks))


def test_ladder__raise_on_too_few_images() -> None:
    with pytest.raises(ValueError, match="3 images to train on are too few: give 4 or more"):
        new.ladder(3, 2)


@pytest.mark.parametrize(("images", "ks"), [(256, [256]), (4095, [256, 1024]), (133_388, [4**e for e in range(4, 9)])])
def test_powers_of_four__from_256_to_the_number_of_images(images: int, ks: list[int]) -> None:
    assert new.powers_of_four(images) == ks
    with pytest.raises(ValueError, match="255 images to train on are too few"):
        new.powers_of_four(255)


def test_create__granularities_from_the_number_of_images(root: Path, tmp_path: Path) -> None:
    lines = new.create(root, "auto", [paint(tmp_path / "flat", *[f"{i}.png" for i in range(260)])], "auto")
    assert "granularities: k = 256, for 260 training images" in lines


def test_granularities__as_listed() -> None:
    assert new.granularities("1950,1500,1950", 3897, 3) == [1500, 1950]
    for wrong in ("1", "2,3898"):
        with pytest.raises(ValueError, match=rf"--granularities is {wrong}: allowed are 2 to 3897"):
            new.granularities(wrong, 3897, 3)
    for wrong in ("", "many", "2,", "-3", "0"):
        with pytest.raises(ValueError, match="give ladder, auto, or numbers such as 256,1024"):
            new.granularities(wrong, 3897, 3)


def test_look__counts_as_the_stage_does(tmp_path: Path) -> None:
    raw = paint(tmp_path / "raw", "a/1.png", "a/2.png", "b/1.png", "b/deep/2.png", "cover.png")
    (raw / "b/note.txt").write_text("x")
    (raw / "b/link.png").symlink_to(paint(tmp_path / "out", "secret.png") / "secret.png")
    found = new.look(raw)
    images, rejected = folder.find(raw)
    assert found.images == len(images) == 3
    assert found.others == len(rejected) == 4
    assert found.readable == {"a": 2, "b": 1}
    assert found.train_images == 2


def test_look__refuses_a_bomb_by_its_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = paint(tmp_path / "raw", "1.png", "2.png")
    Image.new("1", (100, 100)).save(raw / "3.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 5000)
    assert new.look(raw).unreadable == 1


def test_task_names__are_unique_and_plain() -> None:
    paths = [Path(path) for path in ("/x/Food 101", "/y/food-101", "/z/__", "/z/Ä", "/z/food_101")]
    assert list(new.task_names(paths)) == ["food-101", "food-101-2", "images", "images-2", "food_101"]


@pytest.mark.parametrize(
    ("name", "images", "message"),
    [
        ("Mine", ["flat"], "NAME is 'Mine': use small letters"),
        ("../x", ["flat"], "NAME is '../x'"),
        ("taken", ["flat"], "exists: choose another name, or remove it .* `rm -r .*taken`"),
        ("mine", ["gone"], "gone does not exist"),
        ("mine", ["flat", "gone"], "gone does not exist"),
        ("mine", ["flat", "flat"], "flat is given twice"),
        ("mine", ["flat/0.png"], "is not a folder"),
        ("mine", ["empty"], "empty holds no readable image: 0 unreadable, 1 other"),
        ("mine", ["broken"], "broken holds no readable image: 1 unreadable, 0 other"),
        ("mine", ["single"], r"single holds one class folder only \(a\)"),
        ("mine", ["it's"], "has a quote"),
        ("mine", ["tiny"], "1 images to train on are too few"),
    ],
)
def test_create__raise_and_leave_nothing(
    root: Path, tmp_path: Path, name: str, images: list[str], message: str
) -> None:
    paint(tmp_path / "flat", *[f"{i}.png" for i in range(5)])
    paint(tmp_path / "single", "a/1.png", "a/2.png")
    paint(tmp_path / "it's", "1.png")
    paint(tmp_path / "tiny", "1.png")
    for file in ("empty/notes.txt", "broken/1.png"):
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_text("x")
    (root / "profiles/taken").mkdir(parents=True)
    with pytest.raises(ValueError, match=message):
        new.create(root, name, [tmp_path / path for path in images])
    assert [path.name for path in (root / "profiles").iterdir()] == ["taken"]


def test_create__raise_when_models_do_not_follow(root: Path, tmp_path: Path) -> None:
    (root / "params.yaml").write_text(PARAMS.replace("<<: *granularities", "k64: adaptor/k64"))
    with pytest.raises(ValueError, match="must take its adaptors"):
        new.create(root, "mine", [paint(tmp_path / "flat", *[f"{i}.png" for i in range(5)])])
    assert not (root / "profiles").exists()


def test_main__says_what_is_wrong_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pipeline.new", "no-such-profile", "--images", str(tmp_path / "gone")]
    ended = subprocess.run(command, cwd=new.ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr == f"error: {tmp_path / 'gone'} does not exist: give a folder of images\n"
