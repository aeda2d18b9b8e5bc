import json

import numpy as np
import pytest
from ruamel.yaml import YAML
from safetensors.numpy import load_file

from polygrain.retrieval.metrics import score
from polygrain.store import arrays, work
from stages.gsp_folds import Params, main
from tests.helpers.keys import assert_key_follows
from tests.helpers.project import ROOT
from tests.helpers.small import SIZE, lists, write_encoder, write_images

ROOT_VALUES = YAML(typ="safe").load((ROOT / "params.yaml").read_text())
FAIR = {"kind": "fair", "folds": 2, "chosen_by": "map_at_r"}
ONE = {"kind": "conventional", "folds": 1, "chosen_by": "recall_at_1"}
LOSS = {"batch_classes": 2, "per_class": 3, "rate": 1.0, "proxy_rate": 1.0, "warmup": 0}
C2 = LOSS | {"values": {"positive_margin": 0.0, "negative_margin": 0.5, "normalise": True}}
PROXY = LOSS | {"batch_classes": 3, "per_class": 1, "proxy_rate": 10.0, "warmup": 1, "values": {"temperature": 0.11}}
LIBC = LOSS | {"values": {"steps": 1, "heads": 2, "temperature": 0.2, "smoothing": 0.1, "dropout": 0.1}}
VALUES = ROOT_VALUES["gsp_folds"] | {
    "side": SIZE,
    "backbone": ROOT_VALUES["gsp_folds"]["backbone"] | {"depth": None},
    "hidden": 0,
    "embedding": 8,
    "protocol": FAIR,
    "stopping": {"every": 2, "patience": 2, "least_gain": 0.0, "plateau": None, "factor": 0.5, "longest": 4},
    "losses": {"c2": C2, "proxy_nca_pp": PROXY},
    "poolings": {"gap": {}, "gsp": {"prototypes": 4, "mu": 0.5, "epsilon": 5.0}},
    "learning_rate": 0.01,
}
SHAKE = dict.fromkeys(["turn", "stroke", "jitter", "tint", "grey", "blur"], 0.0) | {"smallest_crop": 0.8, "flip": 0.5}
RESNET = VALUES["backbone"] | {"weights": "random", "architecture": "test_resnet", "depth": 3, "is_trained": True}


@pytest.fixture(autouse=True)
def in_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    root = tmp_path_factory.mktemp("world")
    return write_images(root / "images", classes=8) / "dots", write_encoder(root / "encoder")


def run(world, output, loss="c2", pooling="gsp", zero_shot=0.0, values=None, shape="crop", at=(0, 0), **changes):
    spec = {"images": "images/dots", "loss": loss, "pooling": pooling, "zero_shot": zero_shot, "values": values or {}}
    item = {"run": "one", "images": "images/dots", "fold": at[0], "repeat": at[1]}
    name, params = f"one-{at[0]}-{at[1]}", Params(**(VALUES | changes))
    listed = lists(gsp_runs={"one": spec}, gsp_trainings={name: item})
    main(*world, output, training=name, params=params, lists=listed, seed=0, shape=shape)
    work.clear()  # as the command does
    return output


def bytes_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_main__writes_one_fold_and_says_what_was_trained(world, tmp_path):
    output = run(world, tmp_path / "out", zero_shot=0.2, values={"mu": 1.0}, at=(1, 0))
    config = json.loads((output / "config.json").read_text())
    setting = config["setting"]
    assert setting["values"] == {"prototypes": 4, "mu": 1.0, "epsilon": 5.0} and setting["network"] == "the encoder"
    assert (setting["protocol"], setting["embedding"], setting["folds"]) == ("fair", 8, 2)
    assert config["classes"] == [2, 3] and config["rows"] == list(range(32, 64))
    vectors = arrays.open(output / "embeddings.zarr")[:]
    assert vectors.shape == (32, 8) and np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert arrays.open(output / "attributes.zarr").shape == (32, 4)
    assert (output / "history.csv").read_text().startswith("step,loss,map_at_r,rate\n2,")
    assert not (output / "pictures.safetensors").exists() and not list((tmp_path / ".work").glob("gsp_folds/*/*"))


def test_main__libc_trains_with_its_batch_and_hands_out_the_embedding_alone(world, tmp_path):
    poolings = {"gsp_gmp": VALUES["poolings"]["gsp"]}
    changes = {"losses": {"libc": LIBC}, "poolings": poolings, "optimizer": "radam"}
    first, second = (run(world, tmp_path / name, "libc", "gsp_gmp", 0.1, **changes) for name in ("first", "second"))
    assert bytes_of(first) == bytes_of(second)  # dropout draws the same
    weights = load_file(first / "weights.safetensors")
    assert weights["loss.refined_classifier.weight"].shape == weights["loss.classifier.weight"].shape == (2, 8)
    assert arrays.open(first / "embeddings.zarr").shape == (32, 8)


def test_main__a_backbone_that_trains_is_saved(world, tmp_path):
    losses = {"proxy_nca_pp": PROXY | {"batch_classes": 2}}
    changes = {"backbone": RESNET, "augmentation": SHAKE, "crop_ratio": 1.3333, "losses": losses}
    outputs = [run(world, tmp_path / f"{fold}", "proxy_nca_pp", "gap", at=(fold, 0), **changes) for fold in range(2)]
    first, second = (load_file(output / "weights.safetensors") for output in outputs)
    start = {name: tensor for name, tensor in first.items() if name.startswith("backbone.")}
    assert start and any(np.abs(tensor - second[name]).max() > 0 for name, tensor in start.items())
    assert not (outputs[0] / "attributes.zarr").exists()


def test_main__tuning_evaluates_the_held_out_training_classes(world, tmp_path):
    output = run(world, tmp_path / "out", protocol=FAIR | {"kind": "tuning"}, at=(0, 1))
    assert json.loads((output / "config.json").read_text())["rows"] == list(range(16, 32))


def test_main__conventional_trains_on_all_training_classes_and_stops_by_the_score_it_names(world, tmp_path):
    output = run(world, tmp_path / "out", protocol=ONE)
    assert json.loads((output / "config.json").read_text())["classes"] == [0, 1, 2, 3]
    header, *lines = (output / "history.csv").read_text().splitlines()
    assert header == "step,loss,recall_at_1,rate"
    best = max(float(line.split(",")[2]) for line in lines)
    vectors = arrays.open(output / "embeddings.zarr")[:]
    scores = score(vectors, np.repeat(np.arange(4, 8), 8), np.array(["test"] * 32))
    assert scores["recall_at_1"] == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"loss": "c7"}, "losses.c7; known: c2"),
        ({"pooling": "gap", "zero_shot": 0.1}, "attributes"),
        ({"values": {"mu": 1.5}}, "mu"),
        ({"resize": 8}, "resize 8"),
    ],
)
def test_main__raises_and_says_what_is_allowed(world, tmp_path, changes, word):
    with pytest.raises(ValueError, match=word):
        run(world, tmp_path / "out", **changes)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("listed", [[(0, 0)], [(0, 0), (1, 1)], [(0, 0), (0, 1), (1, 0)], []])
def test_fits__each_run_trains_all_its_folds_equally_often(listed):
    spec = {"images": "images/dots", "loss": "c2", "pooling": "gap", "zero_shot": 0, "values": {}}
    items = {
        f"one-{fold}-{repeat}": {"run": "one", "images": "images/dots", "fold": fold, "repeat": repeat}
        for fold, repeat in listed
    }
    with pytest.raises(ValueError, match="each fold of one equally often, such as one-0-0, one-1-0"):
        Params(**VALUES).fits(lists(gsp_runs={"one": spec}, gsp_trainings=items))


def test_main__its_key_follows_what_it_reads(world, tmp_path, monkeypatch):
    files = ["0/table.parquet", "1/config.json"]
    assert_key_follows(files, lambda given: run(given, tmp_path / "out"), world, tmp_path, monkeypatch)
