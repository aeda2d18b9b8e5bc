import os
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest
from PIL import Image
from ruamel.yaml import YAML

from polygrain.config import folders, new, profiles, survey
from polygrain.runner import command
from polygrain.sources import decode, folder
from tests.helpers import streams


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with the root's real values and no profile."""
    (tmp_path / "root").mkdir()
    (tmp_path / "root/params.yaml").write_text((new.ROOT / "params.yaml").read_text())
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
    assert folders.SUFFIXES == folder.SUFFIXES
    assert folders.FORMATS == decode.FORMATS


def test_create__labelled_and_flat(root: Path, tmp_path: Path) -> None:
    classes = paint(tmp_path / "My Cars", *[f"{name}/{i}.png" for name in "abc" for i in range(40)])
    (classes / "a/broken.jpg").write_text("x")
    (classes / "a/notes.txt").write_text("x")
    (classes / "a/.hidden").write_text("x")
    flat = paint(tmp_path / "2024", *[f"{i}.png" for i in range(9)])
    lines = new.create(root, "mine", [classes, flat])
    assert lines == [
        "my-cars: 120 images (3 classes), 80 of them to train on; left out: 1 unreadable, 1 other entries",
        "2024: 9 images (unlabelled, so not evaluated), 9 of them to train on; left out: 0 unreadable, 0 other entries",
        "granularities: k = 2, 8, 32, for 89 training images",
        "wrote profiles/mine/values.yaml; next: polygrain run --profile mine",
    ]
    values = read(root / "profiles/mine/params.yaml")
    fitted = {f"k{k}": f"adaptor/k{k}" for k in (2, 8, 32)}
    assert values["root"] == "../.."
    assert values["granularities"] == fitted
    others = {name: path for name, path in read(root / "params.yaml")["models"].items() if not name.startswith("k")}
    assert values["models"] == fitted | others
    assert values["tasks"] == {
        "my-cars": {"source": "folder", "path": str(classes)},
        "2024": {"source": "folder", "path": str(flat)},
    }
    assert values["encoder"]["path"] == "../../encoders/vit48"
    assert os.readlink(root / "profiles/mine/dvc.yaml") == "../../dvc.yaml"
    assert (root / "profiles/mine/dvc.yaml").read_text() == "stages: {}\n"
    assert sorted(path.name for path in (root / "profiles").iterdir()) == ["mine"]


def test_create__writes_what_a_person_reads(root: Path, tmp_path: Path) -> None:
    images = [paint(tmp_path / name, *[f"{i}.png" for i in range(20)]) for name in ("one", "two")]
    new.create(root, "mine", images)
    lines = (root / "profiles/mine/values.yaml").read_text().splitlines()
    assert 15 <= len(lines) <= 45 and max(map(len, lines)) <= 120 + len(str(tmp_path))
    assert sum("#" in line for line in lines) >= 10
    for section in ("tasks:", "granularities:", "images:", "adaptor:", "fusion:", "distillation:"):
        assert any(line.startswith(section) and "#" in line for line in lines), f"{section} says not why"


def test_create__fits_granularities_to_the_images(root: Path, tmp_path: Path) -> None:
    lines = new.create(root, "few", [paint(tmp_path / "flat", *[f"{i}.png" for i in range(63)])])
    assert "granularities: k = 4, 16, for 63 training images" in lines[1]
    before = read(root / "params.yaml")
    rows = {"k4", "k16", *before["models"]} - set(before["granularities"])
    assert set(read(root / "profiles/few/params.yaml")["models"]) == rows >= {"encoder", "neighbour", "chosen"}
    new.create(root, "more", [paint(tmp_path / "flat", *[f"{i}.png" for i in range(63, 130)])])
    assert list(read(root / "profiles/more/params.yaml")["granularities"]) == ["k4", "k16", "k64"]


def test_create__suits_photographs(root: Path, tmp_path: Path) -> None:
    new.create(root, "mine", [paint(tmp_path / "flat", *[f"{i}.png" for i in range(40)])])
    values, before = read(root / "profiles/mine/params.yaml"), read(root / "params.yaml")
    assert values["seeds"]["largest"] == 16 == max(int(k[1:]) for k in values["granularities"])
    crop = {
        "smallest_crop": 0.2,
        "turn": 15,
        "flip": 0.5,
        "stroke": 0,
        "jitter": 0.1,
        "tint": 0,
        "grey": 0,
        "blur": 0.3,
    }
    adaptor = {"epochs": 6, "batch": 64, "learning_rate": 0.003, "augmentation": crop}
    assert values["adaptor"] == before["adaptor"] | adaptor
    photographs = {"smallest_crop": 0.2, "flip": 0.5, "stroke": 0, "tint": 0}
    views = before["fusion"]["augmentation"]["augmentation"] | photographs
    learning = before["fusion"]["neighbour"]["augmentation"] | photographs | {"jitter": 0.2}
    assert views["jitter"] == 0.4 and learning["grey"] == 0.1
    meant = {("fusion", "augmentation"): views, ("baseline", "one_set"): views, ("baseline", "many_sets"): views}
    meant |= {("fusion", name): learning for name in ("neighbour", "static", "supervised")}
    meant |= {("supervised_model", name): learning for name in ("full", "one", "many")}
    for (section, name), augmentation in meant.items():
        assert values[section][name] == before[section][name] | {"augmentation": augmentation}, (section, name)
    view = before["mpcl_probe"]["view"] | {"flip": 0.5, "tint": 0}
    assert values["mpcl_encoder"] == before["mpcl_encoder"] | {"views": [view, view]}
    assert values["mpcl_probe"]["view"] == view
    assert values["images"] == before["images"] | {"side": 96}
    own = {"path": "../../encoders/vit48", "resize": 96, "crop": 96}
    assert values["encoder"] == before["encoder"] | own
    taught, choice = before["distillation"], before["choice"]
    careful = {"target": taught["target"] | {"mirrored": True}, "augmentation": taught["augmentation"] | {"flip": 0.5}}
    assert values["distillation"] == taught | careful | {"neighbours": 0}
    # The views of the criterion are those of the adaptors, and the reference is what is distilled.
    seen = {"criterion": choice["criterion"] | {"trained": crop}, "reference": choice["reference"] | {"mirrored": True}}
    assert values["choice"] == choice | seen
    assert values["resolution"] == before["resolution"] | {"cost": 2.25}
    assert values["choice"]["reference"] == values["distillation"]["target"]
    branches = ("mpcl", "tll", "gsp_collages", "gsp_runs", "gsp", "gsp_studies")
    assert {branch: values[branch] for branch in branches} == {branch: {} for branch in branches}
    changed = {section for section in values if values[section] != before[section]}
    lists = {"root", "tasks", "granularities", "models", *branches}
    assert changed - lists == {
        *("images", "encoder", "resolution", "seeds", "adaptor", "fusion", "distillation", "choice"),
        *("baseline", "supervised_model", "mpcl_encoder", "mpcl_probe"),
        "gsp_folds",  # a path
    }


def test_create__the_stages_accept_it(root: Path, tmp_path: Path) -> None:
    for name in ("requirements.lock", "encoders"):
        (root / name).symlink_to(new.ROOT / name)
    new.create(root, "mine", [paint(tmp_path / "flat # 1", *[f"{i}.png" for i in range(40)])])
    command.check(root / "profiles/mine/params.yaml")


def test_create__a_path_that_yaml_does_not_keep(root: Path, tmp_path: Path) -> None:
    flat = paint(tmp_path / "a\x85b", *[f"{i}.png" for i in range(5)])
    with pytest.raises(ValueError, match=r"has a character in it that YAML does not keep: rename the folder"):
        new.create(root, "mine", [flat])
    assert list((root / "profiles").iterdir()) == []


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
    found = folders.look(raw)
    images, rejected = folder.find(raw)
    assert found.images == len(images) == 3
    assert found.others == len(rejected) == 4
    assert found.readable == {"a": 2, "b": 1}
    assert found.train_images == 2


def test_look__refuses_a_bomb_by_its_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = paint(tmp_path / "raw", "1.png", "2.png")
    Image.new("1", (100, 100)).save(raw / "3.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 5000)
    assert folders.look(raw).unreadable == 1


def test_task_names__are_unique_and_plain() -> None:
    paths = [Path(path) for path in ("/x/Food 101", "/y/food-101", "/z/__", "/z/Ä", "/z/food_101")]
    assert list(folders.task_names(paths)) == ["food-101", "food-101-2", "images", "images-2", "food_101"]


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
    params = (root / "params.yaml").read_text()
    (root / "params.yaml").write_text(params.replace("  <<: *granularities\n", "  k64: adaptor/k64\n"))
    with pytest.raises(ValueError, match="must take its adaptors"):
        new.create(root, "mine", [paint(tmp_path / "flat", *[f"{i}.png" for i in range(5)])])
    assert list((root / "profiles").iterdir()) == []


def test_create__an_unseen_folder_is_only_evaluated(root: Path, tmp_path: Path) -> None:
    seen = paint(tmp_path / "seen", *[f"{i}.png" for i in range(40)])
    unseen = paint(tmp_path / "unseen", *[f"{name}/{i}.png" for name in "ab" for i in range(9)])
    lines = new.create(root, "mine", [seen], unseen=[unseen])
    assert lines[1].startswith("unseen: 18 images (2 classes), none of them to train on; ")
    assert "for 40 training images" in lines[2]
    tasks = read(root / "profiles/mine/params.yaml")["tasks"]
    assert (
        tasks["unseen"] == {"source": "folder", "path": str(unseen), "unseen": True} and "unseen" not in tasks["seen"]
    )
    with pytest.raises(
        ValueError, match="seen is unlabelled, and an unseen folder is only evaluated: give it with --im"
    ):
        new.create(root, "other", [unseen], unseen=[seen])


def test_create__an_encoder_its_epochs_and_batches(root: Path, tmp_path: Path) -> None:
    flat = paint(tmp_path / "flat", *[f"{i}.png" for i in range(40)])
    weights = tmp_path / "my weights # 1.safetensors"
    weights.touch()
    encoder = {"source": "file", "path": weights, "architecture": "mobilenetv2_100", "side": 64}
    encoder |= {"kwargs": {"pad_type": "same"}, "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}
    batches = {"adaptor": 16, "fusion": 32, "distillation": 8, "features": 64}
    settings = new.Settings(encoder, 64, 96, 2.25, 5, batches)
    new.create(root, "mine", [flat], settings=settings)
    values, before = read(root / "profiles/mine/params.yaml"), read(root / "params.yaml")
    sizes = {"path": str(weights), "resize": 96, "crop": 96, "interpolation": None}
    assert values["encoder"] == encoder | sizes and values["images"]["side"] == 96
    assert (values["adaptor"]["epochs"], values["adaptor"]["batch"]) == (5, 16)
    for name in ("augmentation", "neighbour", "static", "supervised"):
        assert (values["fusion"][name]["epochs"], values["fusion"][name]["batch"]) == (3, 32), name
    assert (values["distillation"]["epochs"], values["distillation"]["batch"]) == (5, 8)
    assert values["features"]["batch"] == values["evaluation"]["batch"] == values["choice"]["criterion"]["batch"] == 64
    assert values["features"] == before["features"] | {"batch": 64}


def test_create__tars_parquet_zips_and_a_pattern_of_them(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiles, "survey", survey.survey)  # in this process, which is sooner
    for number in range(2):
        streams.tar(tmp_path / f"shards/train-{number}.tar", *streams.samples(9 * number, 9 * number + 9))
    streams.tar(tmp_path / "shards/val.tar", *streams.samples(20, 24))
    streams.parquet(tmp_path / "bags/0.parquet", [streams.png(i) for i in range(8)])
    with zipfile.ZipFile(tmp_path / "hats.zip", "w") as packed:
        for i in range(8):
            packed.writestr(f"{'ab'[i % 2]}/{i}.png", streams.png(i))
    given = [str(tmp_path / "shards/train-*.tar"), tmp_path / "bags", tmp_path / "hats.zip"]
    lines = new.create(root, "mine", given, unseen=[tmp_path / "shards/val.tar"])
    assert [line.partition(";")[0] for line in lines[:4]] == [
        "train: 18 images (3 classes), 12 of them to train on",
        "bags: 8 images (unlabelled, so not evaluated), 8 of them to train on",
        "hats: 8 images (2 classes), 4 of them to train on",
        "val: 4 images (3 classes), none of them to train on",
    ]
    assert read(root / "profiles/mine/params.yaml")["tasks"] == {
        "train": {"source": "tars", "path": str(tmp_path / "shards"), "files": "train-*.tar"},
        "bags": {"source": "parquet", "path": str(tmp_path / "bags")},
        "hats": {"source": "folder", "path": str(tmp_path / "hats.zip")},
        "val": {"source": "tars", "path": str(tmp_path / "shards/val.tar"), "unseen": True},
    }


def test_create__an_object_store_by_its_listing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"classes": {"a": 20, "b": 20}, "about": True, "others": 0, "listing": '{"url": "s3://b/shoes"}\n'}
    monkeypatch.setattr(profiles, "survey", lambda kind, where, pattern: found)
    lines = new.create(root, "mine", ["s3://b/shoes"])
    assert lines[0].startswith("shoes: about 40 images (2 classes), 20 of them to train on")
    assert read(root / "profiles/mine/params.yaml")["tasks"] == {"shoes": {"source": "remote", "path": "shoes.json"}}
    assert (root / "profiles/mine/shoes.json").read_text() == found["listing"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("shards/{0..9}.tar", r"braces are not understood, write \* or \? instead"),
        ("s3://key:secret@bucket/x", r"'bucket/x' is no s3://bucket/prefix"),
        ("hats.zip", r"hats\.zip is no zip"),
        ("cut.tar", r"cut\.tar is no whole tar: it has no end"),
        ("empty/*.tar", r"holds no file like \*\.tar with the ending \.tar"),
    ],
)
def test_create__raise_on_what_is_no_stream(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, message: str
) -> None:
    monkeypatch.setattr(profiles, "survey", survey.survey)
    for name in ("hats.zip", "cut.tar"):
        (tmp_path / name).write_bytes(bytes(100))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=message):
        new.create(root, "mine", [given if "://" in given else str(tmp_path / given)])
    assert not (root / "profiles/mine").exists()


def test_survey__is_asked_in_a_process_of_its_own(tmp_path: Path) -> None:
    file = streams.tar(tmp_path / "a.tar", *streams.samples(0, 3))
    assert profiles.survey("tars", str(file), "*")["classes"] == {"0": 1, "1": 1, "2": 1}
    with pytest.raises(ValueError, match=r"gone\.tar does not exist"):
        profiles.survey("tars", str(tmp_path / "gone.tar"), "*")
