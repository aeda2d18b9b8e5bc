import zipfile
from pathlib import Path

import pytest

from polygrain.config.compose import read_params
from polygrain.new import folders
from polygrain.new import profile as new
from tests.helpers.project import ROOT
from tests.polygrain.new.test_folders import paint


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with the root's real values and no profile."""
    (tmp_path / "root").mkdir()
    for name in ("params.yaml", "dvc.yaml"):
        (tmp_path / "root" / name).write_text((ROOT / name).read_text())
    return tmp_path / "root"


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    return paint(tmp_path / "flat", *[f"{i}.png" for i in range(40)])


def test_create__a_task_for_each_folder(root, flat, tmp_path):
    seen = paint(tmp_path / "My Cars", *[f"{name}/{i}.png" for name in "abc" for i in range(20)])
    odd = paint(tmp_path / "20:24/hats # 1", *[f"{i}.png" for i in range(9)])
    lines = new.create(root, "mine", [seen, flat, odd])
    few = "to train on, and the choice needs 50: this task does not count in it"
    assert lines == [
        "my-cars: 60 images of 3 classes (a, b, c), about 48 of them to train on; "
        "flat: 40 images without labels, so not evaluated; hats-1: 9 images without labels, so not evaluated",
        f"of note: my-cars: 48 images {few}; flat: 40 images {few}; hats-1: 9 images {few}",
        new.QUESTION,
        "wrote profiles/mine/values.yaml; next: polygrain run --profile mine",
    ]
    values = read_params(root / "profiles/mine/params.yaml")
    assert values["images"]["protocol"] == "collection" and values["images"]["queries"] == folders.QUERIES
    assert values["choice"]["criterion"]["fewest"] == folders.FEWEST
    assert values["tasks"] == {name: {"source": "folder"} for name in ("my-cars", "flat", "hats-1")}
    assert values["paths"] == {"my-cars": str(seen), "flat": str(flat), "hats-1": str(odd)}
    assert values["granularities"] == {f"size{size}": f"pseudo_labels/size{size}" for size in (2, 4, 8, 24)}
    assert values["adaptors"] == values["fusions"] == {}
    assert set(values["models"]) == {"encoder", "resolution", "without_training", "recommended"}
    assert values["seeds"]["drawn"] == "cells" and values["mpcl"] == values["gsp_runs"] == {}
    assert values["encoder"]["path"] == "../../encoders/vit48"
    file = root / "profiles/mine/dvc.yaml"
    known, made = (read_params(path)["stages"] for path in (root / "dvc.yaml", file))
    assert {"images", "seeds", "scatter", "report"} <= made.keys() < known.keys() and not file.is_symlink()


def test_create__paths_inside_the_clone_are_relative_and_links_stay(root, tmp_path, monkeypatch):
    paint(root / "v1", *[f"{i}.png" for i in range(9)])
    paint(root / "data/raw/20:24", *[f"{i}.png" for i in range(9)])
    for name in ("packed.zip", "deep/in.zip"):
        (root / name).parent.mkdir(exist_ok=True)
        with zipfile.ZipFile(root / name, "w") as file:
            file.write(root / "v1/0.png", "0.png")
    (root / "current").symlink_to("v1")
    (tmp_path / "far").symlink_to("root/v1")
    (tmp_path / "other").symlink_to("root")  # the clone by another name
    monkeypatch.chdir(root)
    given = ["current", root / "data/raw/20:24/", tmp_path / "other/packed.zip", "deep/../deep/in.zip", "../far"]
    weights = {"path": str(root / "nets/a.pt")}
    new.create(root, "mine", given, suit=lambda _: new.Suited(new.EncoderSettings(weights)))
    values = read_params(root / "profiles/mine/values.yaml")
    assert {name: task["path"] for name, task in values["tasks"].items()} == {
        "current": "../../current",
        "20-24": "../../data/raw/20:24",
        "packed": "../../packed.zip",
        "in": "../../deep/in.zip",
        "far": str(tmp_path / "far"),
    }
    assert values["encoder"]["path"] == "../../nets/a.pt"


def test_create__networks_train_where_that_is_asked_for(root, flat):
    new.create(root, "mine", [flat], train=True)
    values = read_params(root / "profiles/mine/params.yaml")
    trained = {"size2": "adaptor/size2", "size8": "adaptor/size8"}  # 40 images make one cluster of 24
    assert values["adaptors"] == trained
    fused = {"average", "augmentation", "neighbour"}
    assert values["models"].keys() == {"encoder", "resolution", "without_training", "recommended", *trained, *fused}
    assert trained.items() <= values["models"].items()


def test_create__an_encoder_and_its_batches(root, flat, tmp_path):
    encoder = {"source": "file", "path": str(tmp_path / "my weights # 1.pt")}
    encoder |= {"architecture": "mobilenetv2_100", "side": 64}
    encoder |= {"kwargs": {"pad_type": "same"}, "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}
    batches = {"adaptor": 16, "fusion": 32}
    settings = new.EncoderSettings(encoder, 64, 96, 2.25, batches)
    given = []
    suited = new.Suited(settings, cost="because", better="a larger one")
    lines = new.create(root, "mine", [flat], train=True, suit=lambda work: given.append(work) or suited)
    assert [work[:4] for work in given] == [(40, 40, 1, 2)] and lines[2] == "because"
    values = read_params(root / "profiles/mine/params.yaml")
    assert values["report"]["better"] == "a larger one"
    sizes = {"resize": 96, "crop": 96, "interpolation": None}
    assert values["encoder"] == encoder | sizes and values["images"]["side"] == 96
    parts = [values["adaptor"], values["fusion"]["augmentation"], values["fusion"]["static"]]
    assert [part["batch"] for part in parts] == [16, 32, 32]


def test_create__an_object_store_has_its_listing_beside_it(root, monkeypatch):
    found = folders.Folder("remote", "s3://b/shoes", {"a": 20, "b": 20}, is_estimate=True, listing="{}\n")
    monkeypatch.setattr(new, "examine", lambda *given: found)
    lines = new.create(root, "mine", ["s3://b/shoes"])
    assert lines[0].startswith("shoes: about 40 images of 2 classes (a, b), about 32 of them to train on")
    values = read_params(root / "profiles/mine/params.yaml")
    assert values["tasks"] == {"shoes": {"source": "remote"}} and values["paths"] == {"shoes": "shoes.json"}
    assert (root / "profiles/mine/shoes.json").read_text() == "{}\n"


@pytest.mark.parametrize(
    ("name", "images", "message"),
    [
        ("Mine", ["flat"], "NAME is 'Mine': use small letters"),
        ("taken", ["flat"], "exists: choose another name, or remove it"),
        ("mine", ["tiny"], "too few images to train on, 1: give 2 or more"),
    ],
)
def test_create__raise_and_leave_nothing(root, flat, tmp_path, name, images, message):
    paint(tmp_path / "tiny", "1.png")
    (root / "profiles/taken").mkdir(parents=True)
    with pytest.raises(ValueError, match=message):
        new.create(root, name, [tmp_path / path for path in images])
    assert [path.name for path in (root / "profiles").iterdir()] == ["taken"]


@pytest.mark.parametrize(
    ("images", "sizes"), [(1, ""), (3, ""), (4, "2"), (15, "2 4"), (16, "2 4 8"), (48, "2 4 8 24")]
)
def test_sizes__of_which_the_images_make_two_clusters(images, sizes):
    assert new.sizes(images) == [f"size{size}" for size in sizes.split()]


def test_create__of_three_images_nothing_is_clustered(root, tmp_path):
    three = paint(tmp_path / "three", *[f"{i}.png" for i in range(3)])
    new.create(root, "mine", [three])
    assert read_params(root / "profiles/mine/params.yaml")["granularities"] == {}
    with pytest.raises(ValueError, match="too few images to train on, 3: give 4"):
        new.create(root, "other", [three], train=True)


def test_create__how_many_are_alike_is_said_of_all_or_of_each(root, flat, tmp_path):
    other = paint(tmp_path / "other", *[f"{i}.png" for i in range(30)])
    expected = {"6": {"flat": 6, "other": 6}, "6 300": {"flat": 6, "other": 300}}
    for words, alike in expected.items():
        name = f"mine{words.replace(' ', '-')}"
        lines = new.create(root, name, [flat, other], alike=[int(word) for word in words.split()])
        assert read_params(root / "profiles" / name / "params.yaml")["choice"]["alike"] == alike
        assert new.QUESTION not in lines
    with pytest.raises(ValueError, match="--alike is given 3 times"):
        new.create(root, "none", [flat, other], alike=[2, 3, 4])
